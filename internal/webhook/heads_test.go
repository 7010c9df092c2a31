package webhook

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// The first notification of each job is delivered, and a row is delivered as a whole or waits as a whole.
func TestRowsAreDeliveredAsAWhole(t *testing.T) {
	n := func(number, row int64, job byte) kernel.Notification {
		return kernel.Notification{Number: number, Row: row, Job: perdure.JobID{job}}
	}
	for _, c := range []struct {
		due  []kernel.Notification
		want string
	}{
		{nil, "[]"},
		{[]kernel.Notification{n(1, 1, 1), n(2, 1, 2), n(3, 3, 3), n(4, 3, 4)}, "[1 2 3 4]"},
		{[]kernel.Notification{n(1, 1, 1), n(2, 1, 2), n(3, 3, 3), n(4, 3, 2), n(5, 5, 4)}, "[1 2 5]"},
		{[]kernel.Notification{n(1, 1, 1), n(2, 2, 1), n(3, 2, 2), n(4, 4, 2), n(5, 4, 3), n(6, 6, 3)}, "[1]"}, // 4 waits for 3, which waits
		{[]kernel.Notification{n(1, 1, 0), n(2, 2, 0), n(3, 3, 1), n(4, 4, 1)}, "[1 2 3]"},                     // of no job
	} {
		numbers := []int64{}
		for _, d := range firstOfJobs(c.due) {
			numbers = append(numbers, d.Number)
		}
		if got := fmt.Sprint(numbers); got != c.want {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
}
