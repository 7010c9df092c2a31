package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Statements go to the server in a pipeline: any number of them in one round trip, each with its values in
// binary and prepared once per connection. That is done on the driver's lower layer: what encodes and scans
// by reflection costs more here than all of the server's work.

// statement is one, with its parameters, and what is done with its answer.
type statement struct {
	sql  string
	oids []uint32
	buf  []byte // the parameters' cells

	row  func(*reader) error // for each row of the answer
	done func(n int64) error // with the number of rows that it met
	rows int                 // how many it must meet, where that is said
	must bool
	tag  string // what the server calls what it has done
}

// params is the number of parameters so far.
func (s *statement) params() int { return len(s.oids) }

// counted calls f with the number of rows that the statement has met.
func (s *statement) counted(f func(n int64)) *statement {
	s.done = func(n int64) error {
		f(n)
		return nil
	}
	return s
}

// errRows is the error of a statement that has met another number of rows than it must (exact).
var errRows = errors.New("another number of rows than there must be")

func q(sql string) *statement { return &statement{sql: sql, buf: takeBuffer()} }

func (s *statement) uuid(v [16]byte) *statement {
	s.oids, s.buf = append(s.oids, tUUID.oid), cellUUID(s.buf, v)
	return s
}

func (s *statement) int(v int) *statement {
	s.oids, s.buf = append(s.oids, tInt4.oid), cellInt4(s.buf, v)
	return s
}

func (s *statement) int64(v int64) *statement {
	s.oids, s.buf = append(s.oids, tInt8.oid), cellInt8(s.buf, v)
	return s
}

func (s *statement) text(v string) *statement {
	s.oids, s.buf = append(s.oids, tText.oid), cellText(s.buf, v)
	return s
}

func (s *statement) bytes(v []byte) *statement {
	s.oids, s.buf = append(s.oids, tBytea.oid), cellBytes(s.buf, v)
	return s
}

func (s *statement) json(v []byte) *statement {
	s.oids, s.buf = append(s.oids, tJSON.oid), cellJSON(s.buf, v)
	return s
}

// time is null where it is zero.
func (s *statement) time(t time.Time) *statement {
	s.oids, s.buf = append(s.oids, tTime.oid), nullTime(s.buf, t)
	return s
}

// moment is never null.
func (s *statement) moment(t time.Time) *statement {
	s.oids, s.buf = append(s.oids, tTime.oid), cellTime(s.buf, t)
	return s
}

// array is one of n elements, whose cells are there.
func (s *statement) array(t *sqlType, n int, cells []byte) *statement {
	s.oids = append(s.oids, t.array)
	s.buf = slices.Grow(s.buf, arrayHeadSize+len(cells))
	s.buf = append(arrayHead(s.buf, t, n, len(cells)), cells...)
	return s
}

// uuidArray is an array of n ids.
func (s *statement) uuidArray(n int, at func(i int) [16]byte) *statement {
	s.buf = slices.Grow(s.buf, arrayHeadSize+20*n)
	s.oids, s.buf = append(s.oids, tUUID.array), arrayHead(s.buf, tUUID, n, 20*n)
	for i := range n {
		s.buf = cellUUID(s.buf, at(i))
	}
	return s
}

// int4Array is an array of n numbers.
func (s *statement) int4Array(n int, at func(i int) int) *statement {
	s.buf = slices.Grow(s.buf, arrayHeadSize+8*n)
	s.oids, s.buf = append(s.oids, tInt4.array), arrayHead(s.buf, tInt4, n, 8*n)
	for i := range n {
		s.buf = cellInt4(s.buf, at(i))
	}
	return s
}

func (s *statement) texts(list []string) *statement {
	var cells []byte
	for _, v := range list {
		cells = cellText(cells, v)
	}
	return s.array(tText, len(list), cells)
}

func (s *statement) each(row func(*reader) error) *statement {
	s.row = row
	return s
}

// exact makes the statement fail with errRows if it does not meet n rows.
func (s *statement) exact(n int) *statement {
	s.must, s.rows = true, n
	s.done = func(met int64) error {
		if met != int64(n) {
			return errRows
		}
		return nil
	}
	return s
}

// strictly lets the server itself fail what is exact, by a division by zero, which nothing else here can come
// to: for what is sent before it is known.
func (s *statement) strictly() {
	if !s.must {
		return
	}
	s.must, s.done = false, nil
	s.sql = fmt.Sprintf("with w as (%s returning 1) select 1 / (count(*) = $%d)::int from w", s.sql, len(s.oids)+1)
	s.int64(int64(s.rows))
}

// then calls f once the statement was answered without an error.
func (s *statement) then(f func()) {
	before := s.done
	s.done = func(n int64) error {
		if before != nil {
			if err := before(n); err != nil {
				return err
			}
		}
		f()
		return nil
	}
}

// into collects the rows of a query.
func into[T any](s *statement, all *[]T, scan func(*reader) T) *statement {
	return s.each(func(r *reader) error {
		*all = append(*all, scan(r))
		return r.failed
	})
}

// cells are the parameters' cells without their lengths.
func (s *statement) cells(values [][]byte) [][]byte {
	for b := s.buf; len(b) > 0; {
		n := int(int32(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])))
		b = b[4:]
		if n < 0 {
			values = append(values, nil)
			continue
		}
		values = append(values, b[:n:n])
		b = b[n:]
	}
	return values
}

// wire is a connection's memory: which statements are prepared on it.
type wire struct {
	known map[string]*prepared
	made  int // names are never used twice
	used  int // counts calls, to tell what was not used for long
	words words
	out   []byte // for the next request, if it is not large
}

type prepared struct {
	name string
	desc *pgconn.StatementDescription // nil: not yet confirmed
	used int
}

// maxPrepared bounds what is prepared on a connection. The program has fewer texts that come often: the
// others are updates of columns that rarely change together.
const maxPrepared = 250

const wireKey = "perdure"

func wireOf(conn *pgx.Conn) *wire {
	data := conn.PgConn().CustomData()
	w, ok := data[wireKey].(*wire)
	if !ok {
		w = &wire{known: map[string]*prepared{}}
		data[wireKey] = w
	}
	return w
}

var binaryFormat = []int16{1}

// roundTrip sends the statements and takes their answers. What comes first of what fails is told, and the
// server carries out nothing after it.
func roundTrip(ctx context.Context, conn *pgx.Conn, list ...*statement) error {
	crashpoint.Here(crashpoint.PostgresSend)
	sent := time.Now()
	w := wireOf(conn)
	p := conn.PgConn().StartPipeline(ctx)
	prepares := conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	fresh := make([]*prepared, len(list)) // to be prepared with the statement
	var values [][]byte
	conn.PgConn().Frontend().Send(w.buffer(list, prepares))
	for i, s := range list {
		values = s.cells(values[:0]) // they are copied when they are sent
		if !prepares {
			p.SendQueryParams(s.sql, values, s.oids, binaryFormat, binaryFormat)
			continue
		}
		w.used++
		known := w.known[s.sql]
		if known == nil {
			w.forget(p)
			w.made++
			known = &prepared{name: fmt.Sprintf("perdure_%d", w.made)}
			w.known[s.sql], fresh[i] = known, known
			p.SendPrepare(known.name, s.sql, s.oids)
		}
		known.used = w.used
		if known.desc != nil {
			p.SendQueryStatement(known.desc, values, binaryFormat, binaryFormat)
		} else {
			p.SendQueryPrepared(known.name, values, binaryFormat, binaryFormat)
		}
	}
	err := p.Sync()
	for i, s := range list {
		if err == nil {
			err = s.answer(p, w, fresh[i], sent)
		}
	}
	crashpoint.Here(crashpoint.PostgresReceived)
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		w.doubt(err) // and the statements may be sent again
		return err
	}
	for _, s := range list {
		giveBuffer(s.buf)
		s.buf = nil
	}
	return nil
}

// buffer is sent as if it were a message, and takes the place of the driver's buffer, which grows with every message and is
// made anew after a request of more than 1 KiB.
type buffer []byte

func (buffer) Frontend()                           {}
func (buffer) Decode([]byte) error                 { return errors.ErrUnsupported }
func (b buffer) Encode(dst []byte) ([]byte, error) { return append(b, dst...), nil }

// buffer is long enough for these statements. The driver is through with the one before: a request is written whole before its
// answer is read.
func (w *wire) buffer(list []*statement, prepares bool) buffer {
	size := 1024
	for _, s := range list {
		size += len(s.buf) + messageSize
		if !prepares || w.known[s.sql] == nil {
			size += len(s.sql) + 4*len(s.oids)
		}
	}
	if size > maxBuffer {
		return make([]byte, 0, size)
	}
	w.out = slices.Grow(w.out[:0], size)
	return w.out
}

// messageSize is what a statement takes up in a request beside its text and its values, as a rule.
const messageSize = 64

// answer reads the answer to one statement of a request that was sent at the given time.
func (s *statement) answer(p *pgconn.Pipeline, w *wire, fresh *prepared, sent time.Time) error {
	if fresh != nil {
		got, err := skipped(p)
		if err != nil {
			return err
		}
		desc, ok := got.(*pgconn.StatementDescription)
		if !ok {
			return fmt.Errorf("prepare was answered by %T", got)
		}
		desc.Name = fresh.name
		fresh.desc = desc
	}
	got, err := skipped(p)
	if err != nil {
		return err
	}
	result, ok := got.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("a statement was answered by %T", got)
	}
	var failed error
	r := reader{words: &w.words, sent: sent}
	for result.NextRow() {
		if s.row != nil && failed == nil {
			r.values = result.Values()
			failed = s.row(&r)
		}
	}
	tag, err := result.Close()
	if err == nil {
		err = failed
	}
	s.tag = tag.String()
	if err == nil && s.done != nil {
		err = s.done(tag.RowsAffected())
	}
	return err
}

// skipped is the next answer that is not one to a Close of a prepared statement.
func skipped(p *pgconn.Pipeline) (any, error) {
	for {
		got, err := p.GetResults()
		if _, closed := got.(*pgconn.CloseComplete); !closed || err != nil {
			return got, err
		}
	}
}

// forget makes room for one more.
func (w *wire) forget(p *pgconn.Pipeline) {
	if len(w.known) < maxPrepared {
		return
	}
	var oldest string
	for sql, known := range w.known {
		if known.desc != nil && (oldest == "" || known.used < w.known[oldest].used) {
			oldest = sql
		}
	}
	if oldest != "" {
		p.SendDeallocate(w.known[oldest].name)
		delete(w.known, oldest)
	}
}

// doubt forgets what may not be prepared after all. Where the server does not know what was, or knows
// something else, all of it is prepared anew.
func (w *wire) doubt(err error) {
	var pe *pgconn.PgError
	all := errors.As(err, &pe) && (pe.Code == "26000" || pe.Code == "0A000")
	for sql, known := range w.known {
		if all || known.desc == nil {
			delete(w.known, sql)
		}
	}
}
