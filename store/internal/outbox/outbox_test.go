package outbox

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func pending(n, job int, edits ...func(*kernel.Notification)) kernel.Notification {
	x := kernel.Notification{ID: fmt.Sprintf("ntc_%d", n), Receiver: "a", Job: perdure.JobID{15: byte(job), 14: byte(job >> 8)}, Kind: operate.EventDone, Data: []byte(`{"key":"x"}`),
		At: time.UnixMicro(1), ExpiresAt: time.UnixMicro(2), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: time.UnixMicro(1)}}
	for _, edit := range edits {
		edit(&x)
	}
	return x
}

// stored returns rows as a store reads them.
func stored(rows []Row) []Row {
	for i := range rows {
		rows[i].Data, rows[i].Number = rows[i].Text(), int64(i+1)*Room
	}
	return rows
}

// shape returns the ids of each row.
func shape(t *testing.T, rows []Row) (all [][]string) {
	t.Helper()
	for _, r := range stored(rows) {
		list, err := Unpack([]Row{r})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i, n := range list {
			ids = append(ids, n.ID)
			if n.Number != r.Number+int64(i) {
				t.Errorf("%s has number %d in row %d", n.ID, n.Number, r.Number)
			}
		}
		all = append(all, ids)
	}
	return all
}

func TestPack(t *testing.T) {
	other := func(n *kernel.Notification) { n.Receiver = "b" }
	secret := func(n *kernel.Notification) { n.Secret = "s" }
	dead := func(n *kernel.Notification) { n.State = operate.DeliveryDead }
	for name, tt := range map[string]struct {
		list []kernel.Notification
		want string
	}{
		"none":                      {nil, "[]"},
		"one":                       {[]kernel.Notification{pending(1, 1)}, "[[ntc_1]]"},
		"different jobs":            {[]kernel.Notification{pending(1, 1), pending(2, 2), pending(3, 3)}, "[[ntc_1 ntc_2 ntc_3]]"},
		"several of each job":       {[]kernel.Notification{pending(1, 1), pending(2, 1), pending(3, 2), pending(4, 2), pending(5, 2)}, "[[ntc_1 ntc_3] [ntc_2 ntc_4] [ntc_5]]"},
		"two receivers":             {[]kernel.Notification{pending(1, 1), pending(2, 1, other), pending(3, 2), pending(4, 2, other)}, "[[ntc_1 ntc_3] [ntc_2 ntc_4]]"},
		"of no job":                 {[]kernel.Notification{pending(1, 0), pending(2, 0)}, "[[ntc_1] [ntc_2]]"},
		"one stands alone":          {[]kernel.Notification{pending(1, 1), pending(2, 1, dead), pending(3, 1), pending(4, 2)}, "[[ntc_1] [ntc_2] [ntc_3 ntc_4]]"},
		"another secret":            {[]kernel.Notification{pending(1, 1), pending(2, 2, secret), pending(3, 3, secret)}, "[[ntc_1] [ntc_2 ntc_3]]"},
		"another secret in between": {[]kernel.Notification{pending(1, 1), pending(2, 1), pending(3, 2, secret), pending(4, 2)}, "[[ntc_1] [ntc_2] [ntc_3] [ntc_4]]"},
		"a row that is not filled":  {[]kernel.Notification{pending(1, 1), pending(2, 1), pending(3, 2, secret), pending(4, 2, secret)}, "[[ntc_1] [ntc_2] [ntc_3] [ntc_4]]"},
	} {
		if got := fmt.Sprint(shape(t, Pack(tt.list))); got != tt.want {
			t.Errorf("%s: %s, not %s", name, got, tt.want)
		}
	}
}

// A row has at most MaxSize notifications, and gets no more once it has MaxData. The order of each job is kept.
func TestPackIsBounded(t *testing.T) {
	large := bytes.Repeat([]byte("x"), MaxData/10)
	var list []kernel.Notification
	for i := range 3 * MaxSize {
		for k := range 2 {
			list = append(list, pending(2*i+k, i+1, func(n *kernel.Notification) {
				if i < 25 {
					n.Data = fmt.Appendf(nil, "%q", large)
				}
			}))
		}
	}
	place := map[string]int{}
	sizes := map[int]int{}
	for i, row := range stored(Pack(list)) {
		all, err := Unpack([]Row{row})
		if err != nil || len(all) != row.Size || row.Size > MaxSize || len(row.Data) > MaxData+MaxData/10+MaxSize*200 {
			t.Fatalf("a row of %d notifications and %d bytes: %d, %v", row.Size, len(row.Data), len(all), err)
		}
		sizes[row.Size]++
		for _, n := range all {
			place[n.ID] = i
		}
	}
	if sizes[10] == 0 || sizes[MaxSize] == 0 {
		t.Errorf("sizes: %v", sizes)
	}
	for i := range 3 * MaxSize {
		if first, second := place[fmt.Sprintf("ntc_%d", 2*i)], place[fmt.Sprintf("ntc_%d", 2*i+1)]; first >= second {
			t.Errorf("the second notification of job %d is in row %d, the first in row %d", i, second, first)
		}
	}
}

func TestDamagedRowIsAnError(t *testing.T) {
	row := Row{Size: 2, Notification: pending(1, 1)}
	for _, data := range []string{"", "{}", `[{"id":"a","job":"x"}]`, `[{"id":"a"`} {
		if row.Data = []byte(data); data == "" {
			row.Data = nil
		}
		if all, err := Unpack([]Row{row}); err == nil {
			t.Errorf("%q: %v", data, all)
		}
	}
}

// writer keeps rows, and counts calls.
type writer struct {
	rows               map[int64]Row
	saves, taken, made int
}

func (w *writer) SaveOutcomes(_ string, all []Outcome) (saved []int64, err error) {
	w.saves++
	for _, o := range all {
		if r, there := w.rows[o.Number]; there && r.Size == o.Size && r.State == operate.DeliveryPending {
			r.DeliveryOutcome = o.DeliveryOutcome
			w.rows[o.Number] = r
			saved = append(saved, o.Number)
		}
	}
	slices.Reverse(saved) // the order is not promised
	return saved, nil
}

func (w *writer) TakeRows(_ string, numbers []int64) (rows []Row, err error) {
	for _, n := range numbers {
		if r, there := w.rows[n]; there && r.Size > 1 && r.State == operate.DeliveryPending {
			delete(w.rows, n)
			rows = append(rows, r)
			w.taken++
		}
	}
	return rows, nil
}

func (w *writer) InsertRows(rows []Row) error {
	for _, r := range rows {
		w.rows[r.Number] = r
		w.made++
	}
	return nil
}

func TestSave(t *testing.T) {
	delivered := kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: time.UnixMicro(9)}
	failed := kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 1, Error: "no"}
	dead := kernel.DeliveryOutcome{State: operate.DeliveryDead, EndedAt: time.UnixMicro(9)}
	at := func(position int64) kernel.DeliveryOutcome {
		o := delivered
		o.Position = position
		return o
	}
	// Row 1024 has three notifications, row 2048 two, rows 3072 and 3073 (of a row that was split) one each.
	outcome := func(number int64, o kernel.DeliveryOutcome) kernel.DeliveryResult {
		return kernel.DeliveryResult{Number: number, DeliveryOutcome: o}
	}
	for name, tt := range map[string]struct {
		results               []kernel.DeliveryResult
		saves, taken, pending int
	}{
		"none":                        {nil, 0, 0, 7},
		"whole rows":                  {[]kernel.DeliveryResult{outcome(2049, delivered), outcome(1024, delivered), outcome(1025, delivered), outcome(1026, delivered), outcome(2048, delivered)}, 1, 0, 2},
		"a row and a single one":      {[]kernel.DeliveryResult{outcome(1024, delivered), outcome(1025, delivered), outcome(1026, delivered), outcome(3073, failed)}, 2, 0, 4},
		"a part of a row":             {[]kernel.DeliveryResult{outcome(1024, delivered), outcome(1025, delivered)}, 3, 1, 5},
		"different outcomes":          {[]kernel.DeliveryResult{outcome(1024, delivered), outcome(1025, failed), outcome(1026, dead)}, 2, 1, 5},
		"a dead row":                  {[]kernel.DeliveryResult{outcome(2048, dead), outcome(2049, dead)}, 2, 1, 5},
		"a stream":                    {[]kernel.DeliveryResult{outcome(1024, at(5)), outcome(1025, at(6)), outcome(1026, at(7)), outcome(2048, at(8)), outcome(2049, at(9))}, 1, 0, 2},
		"a stream with a gap":         {[]kernel.DeliveryResult{outcome(2048, at(8)), outcome(2049, at(10))}, 2, 1, 5},
		"single ones that look whole": {[]kernel.DeliveryResult{outcome(3072, delivered), outcome(3073, delivered)}, 2, 0, 5},
		"none that is there":          {[]kernel.DeliveryResult{outcome(1027, delivered), outcome(9216, delivered)}, 2, 1, 7},
	} {
		w := &writer{rows: map[int64]Row{}}
		rows := Pack([]kernel.Notification{pending(1, 1), pending(2, 2), pending(3, 3), pending(4, 1), pending(5, 2)})
		for _, r := range stored(rows) {
			w.rows[r.Number] = r
		}
		for n := range int64(2) {
			w.rows[3072+n] = Row{Size: 1, Notification: pending(int(6+n), int(6+n), func(x *kernel.Notification) { x.Number = 3072 + n })}
		}
		if err := Save(w, "a", tt.results); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var all []Row
		for _, r := range w.rows {
			all = append(all, r)
		}
		list, err := Unpack(all)
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, n := range list {
			i := slices.IndexFunc(tt.results, func(r kernel.DeliveryResult) bool { return r.Number == n.Number })
			if i >= 0 && n.DeliveryOutcome != tt.results[i].DeliveryOutcome || i < 0 && n.State != operate.DeliveryPending {
				t.Errorf("%s: %d has %+v", name, n.Number, n.DeliveryOutcome)
			}
			if n.State == operate.DeliveryPending {
				open++
			}
		}
		if len(list) != 7 || open != tt.pending || w.saves != tt.saves || w.taken != tt.taken {
			t.Errorf("%s: %d notifications, %d pending, %d saves, %d rows taken", name, len(list), open, w.saves, w.taken)
		}
	}
}
