package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"perdure"
)

// A transaction that writes has the whole file, so that to lock is to load.

func (tx *tx) LockJobs(ids []perdure.JobID) ([]*perdure.Job, error) {
	jobs, err := many(tx.ctx, tx.c, readJob, `SELECT `+jobColumns+` FROM job WHERE id IN (%s) ORDER BY id`,
		"?", unique(ids, compareIDs), bindID)
	return jobs, err
}

func (tx *tx) TryLockJobs(ids []perdure.JobID) ([]*perdure.Job, error) { return tx.LockJobs(ids) }

func (tx *tx) LockLimits(names []string) ([]perdure.Limit, error) {
	limits, err := many(tx.ctx, tx.c, readLimit, `SELECT name, max FROM "limit" WHERE name IN (%s) ORDER BY name`,
		"?", unique(names, cmp.Compare[string]), bindText)
	if err != nil {
		return nil, err
	}
	for i := range limits {
		if limits[i].Used, err = countHolders(tx.ctx, tx.c, limits[i].Name); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

func (tx *tx) Steps(refs []perdure.StepRef) ([]*perdure.Step, error) {
	steps, err := many(tx.ctx, tx.c, readStep, `SELECT `+stepColumns+` FROM step WHERE (job, idx) IN (VALUES %s)`,
		"(?,?)", unique(refs, compareRefs), bindRef)
	slices.SortFunc(steps, func(a, b *perdure.Step) int { return compareRefs(a.StepRef, b.StepRef) })
	return steps, err
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*perdure.Step, error) {
	return all(tx.ctx, tx.c, readStep, `SELECT `+stepColumns+` FROM step WHERE job = ? ORDER BY idx`, job[:])
}

func (tx *tx) Payloads(refs []perdure.StepRef) ([]perdure.Payload, error) {
	payloads, err := many(tx.ctx, tx.c, readPayload, `
		SELECT job, idx, input, output FROM payload
		WHERE (job, idx) IN (VALUES %s) AND (input IS NOT NULL OR output IS NOT NULL)`,
		"(?,?)", unique(refs, compareRefs), bindRef)
	slices.SortFunc(payloads, func(a, b perdure.Payload) int { return compareRefs(a.StepRef, b.StepRef) })
	return payloads, err
}

func (tx *tx) Definitions(ids []perdure.JobID) (map[perdure.JobID][]byte, error) {
	found := map[perdure.JobID][]byte{}
	_, err := many(tx.ctx, tx.c, func(r *row) struct{} {
		found[r.id()] = r.bytes()
		return struct{}{}
	}, `SELECT job, body FROM definition WHERE job IN (%s)`, "?", unique(ids, compareIDs), bindID)
	return found, err
}

// countHolders counts the rows that hold a permit of a limit.
func countHolders(ctx context.Context, c *conn, limit string) (int, error) {
	switch kind, of, _ := perdure.SplitLimit(limit); kind {
	case "job":
		return one(ctx, c, (*row).int, `SELECT count(*) FROM job WHERE type = ? AND permit = 1`, of)
	case "agent":
		return one(ctx, c, (*row).int, `SELECT count(*) FROM step WHERE agent = ? AND phase = 3`, of)
	}
	return 0, nil
}

func bindID(args []any, id perdure.JobID) []any     { return append(args, id[:]) }
func bindRef(args []any, ref perdure.StepRef) []any { return append(args, ref.Job[:], num(ref.Index)) }
func bindText(args []any, s string) []any           { return append(args, s) }

func unique[T comparable](of []T, compare func(a, b T) int) []T {
	return slices.Compact(slices.SortedFunc(slices.Values(of), compare))
}

func compareIDs(a, b perdure.JobID) int { return bytes.Compare(a[:], b[:]) }

func compareRefs(a, b perdure.StepRef) int {
	return cmp.Or(compareIDs(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
}
