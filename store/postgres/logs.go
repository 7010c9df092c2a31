package postgres

import (
	"context"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	// A run has two streams. The limit makes PostgreSQL look up each run by the primary key, also while the table is small.
	logsSQL = `select l.job, l.step, l.run, l.stream, l.holder, l.next, l.last, l.complete, l.artifact
	from unnest($1::uuid[], $2::text[], $3::bigint[]) as u (job, step, run)
	cross join lateral (select * from perdure.log l where l.job = u.job and l.step = u.step and l.run = u.run limit 2) l`
	addLogSQL = `insert into perdure.log (job, step, run, stream, holder, next, last, complete, movable) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
	on conflict do nothing`
	saveLogSQL = `update perdure.log set next = $5, last = $6, complete = $7, movable = $8
	where job = $1 and step = $2 and run = $3 and stream = $4 and next = $9 and complete = $10 and artifact is null`
	addLogChunkSQL    = "insert into perdure.log_chunk (job, step, run, stream, at, data) values ($1, $2, $3, $4, $5, $6)"
	extendLogChunkSQL = "update perdure.log_chunk set data = data || $6 where job = $1 and step = $2 and run = $3 and stream = $4 and at = $5"
	cutLogSQL         = "delete from perdure.log_chunk where job = $1 and step = $2 and run = $3 and stream = $4 and at >= $5 and at < $6"
	// A row ends after an offset only if it begins less than MaxLogChunk before it.
	logChunksSQL = `select at, data from perdure.log_chunk
	where job = $1 and step = $2 and run = $3 and stream = $4 and at > $5 and at + octet_length(data) > $6 order by at limit $7`

	movableLogsSQL = `select job, step, run, stream, holder, next, last, complete, artifact from perdure.log
	where movable and (job, step, run, stream) > ($1, $2, $3, $4) order by job, step, run, stream limit $5`
	moveLogSQL = `update perdure.log set artifact = $5, movable = false
	where job = $1 and step = $2 and run = $3 and stream = $4 and next = $6 and complete = $7 and movable`
	useLogSQL   = "insert into perdure.artifact_use (job, hash) values ($1, $2) on conflict do nothing"
	clearLogSQL = "delete from perdure.log_chunk where job = $1 and step = $2 and run = $3 and stream = $4"
)

func readLog(r *pgwire.Reader) kernel.Log {
	l := kernel.Log{LogRef: kernel.LogRef{LogRun: kernel.LogRun{Job: r.UUID(), Step: r.Text(), Run: r.Int64()}, Stream: operate.LogStream(r.Text())}}
	l.Holder, l.Next, l.Last, l.Complete = r.Text(), r.Int64(), r.Int64(), r.Bool()
	copy(l.Artifact[:], r.Next()) // NULL: NoArtifact
	return l
}

// Logs implements kernel.LogStore.
func (s *Store) Logs(ctx context.Context, runs []kernel.LogRun) ([]kernel.Log, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	var steps, numbers pgwire.Cells
	for i := range runs {
		steps.Text(runs[i].Step)
		numbers.Int8(runs[i].Run)
	}
	st := pgwire.New(logsSQL).UUIDArray(len(runs), func(i int) [16]byte { return runs[i].Job }).
		Array(pgwire.Text, len(runs), steps).Array(pgwire.Int8, len(runs), numbers)
	return queryAtOnce(ctx, s, st, readLog)
}

// ofLog begins a statement about a log.
func ofLog(sql string, l *kernel.LogRef) *pgwire.Statement {
	return pgwire.New(sql).UUID(l.Job).Text(l.Step).Int64(l.Run).Text(string(l.Stream))
}

// SaveLogs implements kernel.LogStore.
func (s *Store) SaveLogs(ctx context.Context, changes []kernel.LogChange) error {
	return s.write(ctx, func() (list []*pgwire.Statement) {
		for i := range changes {
			c := &changes[i]
			l := &c.Now
			if c.Loaded == nil {
				list = append(list, ofLog(addLogSQL, &l.LogRef).Text(l.Holder).Int64(l.Next).Int64(l.Last).Bool(l.Complete).Bool(l.Movable()).Exact(1))
			} else {
				list = append(list, ofLog(saveLogSQL, &l.LogRef).Int64(l.Next).Int64(l.Last).Bool(l.Complete).Bool(l.Movable()).Int64(c.Loaded.Next).Bool(c.Loaded.Complete).Exact(1))
			}
			for _, w := range c.Writes {
				sql := addLogChunkSQL
				if w.Extends {
					sql = extendLogChunkSQL
				}
				list = append(list, ofLog(sql, &l.LogRef).Int64(w.Offset).Bytes(w.Data).Exact(1))
			}
			if c.CutTo > 0 {
				list = append(list, ofLog(cutLogSQL, &l.LogRef).Int64(kernel.MaxLogPart).Int64(c.CutTo))
			}
		}
		return strictly(list)
	})
}

// strictly makes the transaction of statements fail if one does: the COMMIT is in the same round trip.
func strictly(list []*pgwire.Statement) []*pgwire.Statement {
	for _, st := range list {
		st.Strictly()
	}
	return list
}

// LogChunks implements kernel.LogStore.
func (s *Store) LogChunks(ctx context.Context, log kernel.LogRef, from int64, max int) ([]kernel.LogChunk, error) {
	st := ofLog(logChunksSQL, &log).Int64(from - kernel.MaxLogChunk).Int64(from).Int(max)
	return query(ctx, s, st, func(r *pgwire.Reader) kernel.LogChunk { return kernel.LogChunk{Offset: r.Int64(), Data: r.Bytes()} })
}

// MovableLogs implements kernel.LogStore.
func (s *Store) MovableLogs(ctx context.Context, after kernel.LogRef, max int) ([]kernel.Log, error) {
	return queryAtOnce(ctx, s, ofLog(movableLogsSQL, &after).Int(max), readLog)
}

// MoveLog implements kernel.LogStore.
func (s *Store) MoveLog(ctx context.Context, loaded kernel.Log, to kernel.ArtifactHash) error {
	return s.write(ctx, func() []*pgwire.Statement {
		return strictly([]*pgwire.Statement{
			ofLog(moveLogSQL, &loaded.LogRef).Bytes(to[:]).Int64(loaded.Next).Bool(loaded.Complete).Exact(1),
			pgwire.New(useLogSQL).UUID(loaded.Job).Bytes(to[:]),
			ofLog(clearLogSQL, &loaded.LogRef),
		})
	})
}
