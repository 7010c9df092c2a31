package timetable

import (
	"context"

	"github.com/perdure/perdure/internal/kernel"
)

// UsedArtifacts answers for a store which artifacts are used: by its jobs, and by the jobs that its schedules will make. So an
// artifact that only a schedule names is kept until the schedule is changed.
type UsedArtifacts struct {
	kernel.ArtifactReader
	Store interface {
		kernel.ScheduleReader
		kernel.DefinitionReader
	}
}

// schedulesAtOnce is how many schedules are read at once.
const schedulesAtOnce = 200

// UsedArtifacts implements kernel.ArtifactReader.
func (u UsedArtifacts) UsedArtifacts(ctx context.Context, hashes []kernel.ArtifactHash) ([]kernel.ArtifactHash, error) {
	used, err := u.ArtifactReader.UsedArtifacts(ctx, hashes)
	if err != nil || len(used) == len(hashes) {
		return used, err
	}
	left := make(map[kernel.ArtifactHash]bool, len(hashes))
	for _, h := range hashes {
		left[h] = true
	}
	for _, h := range used {
		delete(left, h)
	}
	note := func(text []byte) {
		for _, h := range kernel.ArtifactsIn(text) {
			if left[h] {
				delete(left, h)
				used = append(used, h)
			}
		}
	}
	for after := ""; len(left) > 0; {
		some, err := u.Store.Schedules(ctx, after, schedulesAtOnce)
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			after = s.Name
			note(s.Settings)
			set, err := s.Parse()
			if err != nil {
				continue // another version of the program has stored it
			}
			ref, named := kernel.StoredName(&set.Job)
			if !named {
				continue
			}
			d, _, err := u.Store.StoredDefinition(ctx, ref.Name, ref.Version)
			if err != nil {
				return nil, err
			}
			if d != nil {
				note(d.Text)
			}
		}
		if len(some) < schedulesAtOnce {
			break
		}
	}
	return used, nil
}
