package sqlite

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// LockTopics locks nothing: there is one writer.
func (tx *tx) LockTopics([]kernel.Topic) error { return nil }

func (tx *tx) Waiters(t kernel.Topic, job perdure.JobID, max int) ([]kernel.StepRef, error) {
	if job.IsZero() {
		return all(tx.c, (*row).ref, `SELECT job, idx FROM perdure_step WHERE topic = ? AND phase = 1 ORDER BY job, idx LIMIT ?`, string(t), max)
	}
	return all(tx.c, (*row).ref, `SELECT job, idx FROM perdure_step WHERE topic = ? AND job = ? AND phase = 1 ORDER BY job, idx LIMIT ?`, string(t), job[:], max)
}

const signalColumns = `number, topic, job, id, data, at, until_at, taken`

func readSignal(r *row) *kernel.Signal {
	s := &kernel.Signal{Number: r.num(), Topic: kernel.Topic(r.text()), Job: r.id(), ID: r.text(), Data: r.bytes(), At: r.time(), Until: r.time()}
	r.json(&s.Taken)
	return s
}

// KeptSignal reads the first signals in their order: the first that is not left out and is for the job is the one.
func (tx *tx) KeptSignal(t kernel.Topic, job perdure.JobID, now time.Time, leftOut []int64) (found *kernel.Signal, err error) {
	numbers, err := json.Marshal(slices.Concat([]int64{0}, leftOut))
	if err != nil {
		return nil, err
	}
	return one(tx.c, readSignal, `SELECT `+signalColumns+` FROM perdure_signal
		WHERE topic = ? AND taken IS NULL AND job IN (zeroblob(16), ?) AND until_at > ? AND number NOT IN (SELECT value FROM json_each(?))
		ORDER BY number LIMIT 1`, string(t), job[:], now.UnixMicro(), string(numbers))
}

func (tx *tx) FindSignal(t kernel.Topic, job perdure.JobID, id string) (*kernel.Signal, error) {
	return one(tx.c, readSignal, `SELECT `+signalColumns+` FROM perdure_signal WHERE topic = ? AND job = ? AND id = ?`, string(t), job[:], id)
}

func (tx *tx) CountSignals(maxKept, max int) (kept, stored int, err error) {
	kept, err = one(tx.c, (*row).int, `SELECT count(*) FROM (SELECT 1 FROM perdure_signal WHERE taken IS NULL LIMIT ?)`, maxKept)
	if err != nil {
		return 0, 0, err
	}
	stored, err = one(tx.c, (*row).int, `SELECT count(*) FROM (SELECT 1 FROM perdure_signal LIMIT ?)`, max)
	return kept, stored, err
}

func (tx *tx) DeleteSignals(now time.Time, max int) (int, error) {
	return tx.changed(`DELETE FROM perdure_signal WHERE number IN (SELECT number FROM perdure_signal WHERE until_at <= ? ORDER BY until_at LIMIT ?)`, now.UnixMicro(), max)
}

func (tx *tx) saveSignals(changes []kernel.SignalChange) error {
	for _, c := range changes {
		if c.Replaces != 0 {
			if err := tx.exec(`DELETE FROM perdure_signal WHERE number = ?`, c.Replaces); err != nil {
				return err
			}
		}
		var taken any
		if !c.Kept() {
			text, err := json.Marshal(c.Taken)
			if err != nil {
				return err
			}
			taken = string(text)
		}
		var n int
		var err error
		if c.Number == 0 {
			n, err = tx.changed(`INSERT INTO perdure_signal (topic, job, id, data, at, until_at, taken) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				string(c.Topic), c.Job[:], c.ID, textOrNull(c.Data), micros(c.At), micros(c.Until), taken)
		} else {
			n, err = tx.changed(`UPDATE perdure_signal SET data = ?, until_at = ?, taken = ? WHERE number = ? AND taken IS NULL`,
				textOrNull(c.Data), micros(c.Until), taken, c.Number)
		}
		if err != nil {
			return err
		}
		if n != 1 {
			return kernel.ErrStale
		}
	}
	return nil
}
