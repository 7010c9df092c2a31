// Package outbox packs notifications into rows of the stores' tables. A commit that ends a hundred jobs writes one row to
// a receiver, and not a hundred: a row costs far more than a notification in it.
//
// A row has one notification, or several (Row.Size). The notifications of a row are of one transaction, of one receiver,
// and of different jobs. They are all pending and were not attempted, or all delivered. A row whose notifications get
// different outcomes is split into rows of one notification each (Save). So whatever is searched by the outcome of
// attempts, the dead ones and those that are to be repeated, is found in rows of one notification.
//
// A row takes Room numbers: its own is that of its first notification, and the others follow.
package outbox

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	// Room is how many numbers a row takes. The number of a new row is a multiple of it.
	Room = 1024
	// MaxSize bounds the notifications of a row, and MaxData their data, in bytes: a row that has as much gets no more.
	MaxSize = 256
	MaxData = 128 << 10
)

// Row is a row of the table: a notification, or several that have all but ID, Job, Kind and Data in common. Then these
// are empty, and the text has them. Number is that of the first notification, and Position of the last.
type Row struct {
	kernel.Notification
	Size int

	several jsontext.Appender
	length  int // of the data
}

// Text returns what is stored as the row's data.
func (r *Row) Text() []byte {
	if r.Size == 1 {
		return r.Data
	}
	return append(r.several.Bytes(), ']')
}

// Pack packs notifications that one transaction stores. The rows are in the order in which they are to be numbered: then
// the numbers of each job's notifications to a receiver are in the order of all.
func Pack(all []kernel.Notification) []Row {
	p := packer{rows: make([]Row, 0, min(len(all), 8)), receivers: map[string]*layers{}}
	if len(all) > 0 { // most notifications are to one receiver: its map need not grow
		p.receivers[all[0].Receiver] = &layers{given: make(map[perdure.JobID]int, len(all))}
	}
	for i := range all {
		p.add(&all[i])
	}
	return p.rows
}

type packer struct {
	rows      []Row
	receivers map[string]*layers
}

// layers are the rows of a receiver to which notifications may be added. Layer n has the n-th notifications of jobs.
type layers struct {
	open  []int                 // places of rows, by layer
	given map[perdure.JobID]int // how many notifications a job has in rows since the last one that stands alone
}

func (p *packer) add(n *kernel.Notification) {
	to := p.receivers[n.Receiver]
	if to == nil {
		to = &layers{given: map[perdure.JobID]int{}}
		p.receivers[n.Receiver] = to
	}
	if n.Job.IsZero() || n.State != operate.DeliveryPending || n.Attempts > 0 {
		p.rows = append(p.rows, Row{Notification: *n, Size: 1})
		to.open = nil
		clear(to.given)
		return
	}
	layer := to.given[n.Job]
	to.given[n.Job]++
	if layer < len(to.open) && p.rows[to.open[layer]].takes(n) {
		p.rows[to.open[layer]].add(n)
		return
	}
	// The notifications that follow those in this row come into rows after it.
	to.open = append(to.open[:min(layer, len(to.open))], len(p.rows))
	p.rows = append(p.rows, Row{Notification: *n, Size: 1, length: len(n.Data)})
}

func (r *Row) takes(n *kernel.Notification) bool {
	return r.Size < MaxSize && r.length < MaxData && r.Secret == n.Secret && r.At.Equal(n.At) && r.NextAt.Equal(n.NextAt) && r.ExpiresAt.Equal(n.ExpiresAt) && r.Error == n.Error
}

func (r *Row) add(n *kernel.Notification) {
	if r.Size == 1 {
		r.several = jsontext.NewAppender(make([]byte, 0, 8*(len(r.Data)+150)))
		r.several.BeginList()
		r.append(&r.Notification)
		r.ID, r.Job, r.Kind, r.Data = "", perdure.JobID{}, "", nil
	}
	r.append(n)
	r.Size++
	r.length += len(n.Data)
}

func (r *Row) append(n *kernel.Notification) {
	r.several.BeginObject()
	r.several.TextField("id", n.ID)
	_ = r.several.PlainField("job", n.Job) // an id always has a text
	r.several.TextField("kind", string(n.Kind))
	r.several.RawField("data", n.Data)
	r.several.EndObject()
}

// Unpack returns the notifications of rows. Data of a row of several is what Text has returned.
func Unpack(rows []Row) (all []kernel.Notification, err error) {
	size := 0
	for i := range rows {
		size += rows[i].Size
	}
	all = make([]kernel.Notification, 0, size)
	for i := range rows {
		if all, err = rows[i].appendTo(all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (r *Row) appendTo(all []kernel.Notification) ([]kernel.Notification, error) {
	r.Row = r.Number
	if r.Size == 1 {
		return append(all, r.Notification), nil
	}
	text := jsontext.NewReader(r.Data, jsontext.Options{AnyNames: true})
	n := r.Notification
	if n.Position > 0 {
		n.Position -= int64(r.Size) - 1
	}
	for text.List(); text.More(); {
		for text.Object(); text.More(); {
			switch name, _ := text.Name(); string(name) {
			case "id":
				n.ID = text.Text()
			case "job":
				if err := n.Job.UnmarshalText(text.Bytes()); err != nil {
					return nil, err
				}
			case "kind":
				if kind := text.Bytes(); string(kind) != string(n.Kind) { // most are as the one before
					n.Kind = operate.EventKind(kind)
				}
			case "data":
				n.Data = text.Raw()
			default:
				text.Skip()
			}
		}
		all = append(all, n)
		if n.Number++; n.Position > 0 {
			n.Position++
		}
	}
	if err := text.End(); err != nil {
		return nil, err
	}
	return all, nil
}

// split returns a row for each notification of rows.
func split(rows []Row) (single []Row, err error) {
	all, err := Unpack(rows)
	for i := range all {
		single = append(single, Row{Notification: all[i], Size: 1})
	}
	return single, err
}

// Outcome is the outcome of all notifications of a row.
type Outcome struct {
	kernel.DeliveryResult // Number is that of the first notification, Position of the last
	Size                  int
}

// Writer writes rows of a receiver, in a transaction.
type Writer interface {
	// SaveOutcomes writes the outcomes of rows that are pending and have this size, and returns the numbers of these rows.
	SaveOutcomes(receiver string, all []Outcome) (saved []int64, err error)
	// TakeRows deletes the rows with these numbers that are pending and have several notifications, and returns them.
	TakeRows(receiver string, numbers []int64) ([]Row, error)
	// InsertRows inserts rows under their numbers.
	InsertRows([]Row) error
}

// Save writes the outcomes of notifications of a receiver. Notifications that are not pending stay as they are.
func Save(w Writer, receiver string, results []kernel.DeliveryResult) error {
	byNumber := func(a, b kernel.DeliveryResult) int { return cmp.Compare(a.Number, b.Number) }
	if !slices.IsSortedFunc(results, byNumber) {
		results = slices.SortedFunc(slices.Values(results), byNumber)
	}
	left := results
	if rows := wholeRows(results); len(rows) > 0 {
		saved, err := w.SaveOutcomes(receiver, rows)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(o Outcome) bool { return !slices.Contains(saved, o.Number) })
		left = without(results, func(r kernel.DeliveryResult) bool {
			return slices.ContainsFunc(rows, func(o Outcome) bool { return o.Number <= r.Number && r.Number < o.Number+int64(o.Size) })
		})
	}
	left, err := saveSingle(w, receiver, left)
	if err != nil || len(left) == 0 {
		return err
	}
	var numbers []int64
	for _, r := range left {
		numbers = append(numbers, rowOf(r.Number))
	}
	taken, err := w.TakeRows(receiver, slices.Compact(numbers))
	if err != nil || len(taken) == 0 {
		return err
	}
	single, err := split(taken)
	if err != nil {
		return err
	}
	if err := w.InsertRows(single); err != nil {
		return err
	}
	_, err = saveSingle(w, receiver, left)
	return err
}

// saveSingle writes the outcomes of rows that have one notification, and returns those for which there is no such row.
func saveSingle(w Writer, receiver string, results []kernel.DeliveryResult) ([]kernel.DeliveryResult, error) {
	if len(results) == 0 {
		return nil, nil
	}
	rows := make([]Outcome, len(results))
	for i := range results {
		rows[i] = Outcome{results[i], 1}
	}
	saved, err := w.SaveOutcomes(receiver, rows)
	if err != nil || len(saved) == len(rows) {
		return nil, err
	}
	slices.Sort(saved)
	return without(results, func(r kernel.DeliveryResult) bool {
		_, found := slices.BinarySearch(saved, r.Number)
		return found
	}), nil
}

func without(results []kernel.DeliveryResult, leave func(kernel.DeliveryResult) bool) []kernel.DeliveryResult {
	return slices.DeleteFunc(slices.Clone(results), leave)
}

// rowOf returns the number of the row of several notifications that has had this number.
func rowOf(number int64) int64 { return number / Room * Room }

// wholeRows returns the rows of several notifications of which all may have been delivered.
func wholeRows(results []kernel.DeliveryResult) (rows []Outcome) {
	for len(results) > 0 {
		first, n := results[0], 1
		for n < len(results) && follows(first, results[n], int64(n)) {
			n++
		}
		if first.Number == rowOf(first.Number) && n > 1 && first.State == operate.DeliveryDelivered {
			rows = append(rows, Outcome{results[n-1], n})
			rows[len(rows)-1].Number = first.Number
		}
		results = results[n:]
	}
	return rows
}

// follows reports whether b may be the outcome of the notification n places behind that of a in its row.
func follows(a, b kernel.DeliveryResult, n int64) bool {
	if a.Position > 0 {
		a.Position += n
	}
	a.Number += n
	return a == b && n < MaxSize
}

// Source reads the rows of a receiver that are due, for Due.
type Source interface {
	// DueRows reads the rows after a number, until they have max notifications. It leaves out rows of one notification that
	// come after a pending one of the same job that was attempted.
	DueRows(after int64, max int) ([]Row, error)
	// Attempted returns the jobs among these that have pending notifications which were attempted, and the lowest number
	// of these.
	Attempted(jobs []perdure.JobID) (map[perdure.JobID]int64, error)
}

// Due implements kernel.Outbox.DueNotifications.
func Due(s Source, max int) (all []kernel.Notification, err error) {
	for after := int64(-1); len(all) < max; {
		left := max - len(all)
		rows, err := s.DueRows(after, left)
		if err != nil || len(rows) == 0 {
			return all, err
		}
		due, err := Unpack(rows)
		if err != nil {
			return nil, err
		}
		after = due[len(due)-1].Number
		last := len(due) < left
		if len(due) > len(rows) {
			if due, err = withoutWaiting(s, due); err != nil {
				return nil, err
			}
		}
		if all = append(all, due...); last {
			break
		}
	}
	return all, nil
}

// withoutWaiting leaves out notifications that come after a pending one of the same job that was attempted.
func withoutWaiting(s Source, due []kernel.Notification) ([]kernel.Notification, error) {
	var jobs []perdure.JobID
	for i := range due {
		if !due[i].Job.IsZero() {
			jobs = append(jobs, due[i].Job)
		}
	}
	attempted, err := s.Attempted(jobs)
	if err != nil || len(attempted) == 0 {
		return due, err
	}
	return slices.DeleteFunc(due, func(n kernel.Notification) bool {
		first, waits := attempted[n.Job]
		return waits && first < n.Number
	}), nil
}

// PendingRow is what PendingForStream needs of a row.
type PendingRow struct {
	kernel.PendingNotification // Number is that of the first notification
	Size                       int
}

// Pending returns the notifications of rows.
func Pending(rows []PendingRow) (all []kernel.PendingNotification) {
	for _, r := range rows {
		for range r.Size {
			all = append(all, r.PendingNotification)
			r.Number++
		}
	}
	return all
}

// ToList is how many notifications are read for Listed: those of the first row may be after the page.
func ToList(f kernel.NotificationFilter, max int) int {
	if f.Before == 0 {
		return max
	}
	return max + MaxSize
}

// Listed returns at most max notifications of rows that were read newest first: those before a number, newest first.
func Listed(rows []Row, before int64, max int) ([]kernel.Notification, error) {
	slices.Reverse(rows)
	all, err := Unpack(rows)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(n kernel.Notification) bool { return n.Number >= before })
	slices.Reverse(all)
	return all[:min(len(all), max)], nil
}

// Streamed returns at most max notifications of rows in the order of their positions: those after a position.
func Streamed(rows []Row, after int64, max int) ([]kernel.Notification, error) {
	all, err := Unpack(rows)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(n kernel.Notification) bool { return n.Position <= after })
	return all[:min(len(all), max)], nil
}
