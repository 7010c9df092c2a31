package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// saveNews stores news of children, and deletes the news that owners have counted.
func (tx *tx) saveNews(c *kernel.Changes) error {
	for _, n := range c.TakenNews {
		if _, there := tx.news[n.Number]; !there {
			return kernel.ErrStale
		}
		remove(tx, tx.news, n.Number)
	}
	if len(c.News) == 0 {
		return nil
	}
	last := tx.lastNews
	tx.addUndo(func() { tx.lastNews = last })
	for _, n := range c.News {
		tx.lastNews++
		n.Number, n.At = tx.lastNews, storedTime(n.At)
		set(tx, tx.news, n.Number, n)
	}
	return nil
}

// newsOf returns the news of a step, the oldest first.
func (d *data) newsOf(owner kernel.StepRef, max int) (found []kernel.ChildNews) {
	for _, number := range slices.Sorted(maps.Keys(d.news)) {
		if n := d.news[number]; n.Owner == owner {
			found = append(found, n)
		}
	}
	return firstN(max, found)
}

// ownersWithNews returns the first steps with news, if some of it is due, apart from those in without.
func (d *data) ownersWithNews(now time.Time, max int, without []kernel.StepRef) []kernel.StepRef {
	var owners []kernel.StepRef
	due := false
	for _, n := range d.news {
		owners, due = append(owners, n.Owner), due || hasCome(n.At, now)
	}
	if !due {
		return nil
	}
	return slices.DeleteFunc(firstN(max, unique(owners, kernel.StepRef.Compare)), func(ref kernel.StepRef) bool { return slices.Contains(without, ref) })
}

func (tx *tx) ChildNews(owner kernel.StepRef, max int) ([]kernel.ChildNews, error) {
	return tx.newsOf(owner, max), nil
}

// ReadChildNews implements kernel.ChildReader.
func (s *Store) ReadChildNews(ctx context.Context, owner kernel.StepRef, max int) ([]kernel.ChildNews, error) {
	return view(ctx, s, func() []kernel.ChildNews { return s.newsOf(owner, max) })
}

func (tx *tx) FindDefinition(name string, version int) (*kernel.StoredDefinition, error) {
	head, there := tx.definitions[name]
	if !there {
		return nil, nil
	}
	d, there := tx.versions[storedKey{name, cmp.Or(version, head.Current)}]
	if !there {
		return nil, nil
	}
	return &d, nil
}
