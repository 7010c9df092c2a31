package postgres

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	usedArtifactsSQL = "select h from unnest($1::text[]) h where exists (select from perdure.artifact_use u where u.hash = decode(h, 'hex'))"
	artifactsOfSQL   = "select encode(hash, 'hex') from perdure.artifact_use where job = $1 order by hash limit $2"
)

// artifactUses inserts uses. Other transactions with several uses insert none for the same jobs: these are new or locked. So two
// of them do not wait for each other.
func (w *writing) artifactUses(all []kernel.ArtifactUse) {
	if len(all) == 0 {
		return
	}
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Bytea.Named("hash")).Classes(1)
	for i := range all {
		g.Row()
		g.At(0).UUID(all[i].Job)
		g.At(1).Bytes(all[i].Hash[:])
	}
	w.add(g.Insert("artifact_use", " on conflict do nothing"))
}

func scanHash(r *pgwire.Reader) (h kernel.ArtifactHash) {
	h, err := kernel.ParseArtifactHash("sha256:" + r.Text())
	if err != nil {
		r.Failed = err
	}
	return h
}

// UsedArtifacts implements kernel.ArtifactReader.
func (s *Store) UsedArtifacts(ctx context.Context, hashes []kernel.ArtifactHash) ([]kernel.ArtifactHash, error) {
	texts := make([]string, len(hashes))
	for i, h := range hashes {
		texts[i] = h.String()[len("sha256:"):]
	}
	return query(ctx, s, pgwire.New(usedArtifactsSQL).Texts(texts), scanHash)
}

// ArtifactsOf implements kernel.ArtifactReader.
func (s *Store) ArtifactsOf(ctx context.Context, job perdure.JobID, max int) ([]kernel.ArtifactHash, error) {
	return query(ctx, s, pgwire.New(artifactsOfSQL).UUID(job).Int(max), scanHash)
}
