package pgwire

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

// wire is the state of one connection: its prepared statements, and buffers.
type wire struct {
	known map[string]*prepared
	made  int // number of names given; a name is never used twice
	used  int // counts calls, to find the statement that was not used for the longest time
	words words
	out   []byte // for the next request, if it is not large
}

type prepared struct {
	name string
	desc *pgconn.StatementDescription // nil: not yet confirmed
	used int
}

// maxPrepared bounds the prepared statements of a connection. The texts that are executed often are fewer; the others
// are updates of columns that rarely change together.
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

// RoundTrip sends the statements in one pipeline, and reads their answers. It returns the first error. After an error of the server, the
// server skips the rest of the pipeline. After an error that only this process finds (Exact without Strictly, or a row function), the
// server has executed the rest, and their answers are not read. Each statement is prepared once for each connection, unless the connection is configured otherwise
// (default_query_exec_mode, for poolers).
func RoundTrip(ctx context.Context, conn *pgx.Conn, list ...*Statement) error {
	crashpoint.Here(crashpoint.PostgresSend)
	sent := time.Now()
	w := wireOf(conn)
	p := conn.PgConn().StartPipeline(ctx)
	prepares := conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	fresh := make([]*prepared, len(list)) // nil unless the statement is prepared with this request
	var values [][]byte
	conn.PgConn().Frontend().Send(w.buffer(list, prepares))
	for i, s := range list {
		values = s.cells(values[:0]) // sending copies them
		if !prepares {
			p.SendQueryParams(s.SQL, values, s.oids, binaryFormat, binaryFormat)
			continue
		}
		w.used++
		known := w.known[s.SQL]
		if known == nil {
			w.forget(p)
			w.made++
			known = &prepared{name: fmt.Sprintf("perdure_%d", w.made)}
			w.known[s.SQL], fresh[i] = known, known
			p.SendPrepare(known.name, s.SQL, s.oids)
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

// buffer replaces the driver's send buffer, which grows with every message, and which the driver drops after a request of more than
// 1 KiB. It is sent as if it were a message.
type buffer []byte

func (buffer) Frontend()                           {}
func (buffer) Decode([]byte) error                 { return errors.ErrUnsupported }
func (b buffer) Encode(dst []byte) ([]byte, error) { return append(b, dst...), nil }

// buffer returns a buffer that is long enough for these statements. The driver does not use the previous one any more: it writes a
// request completely before it reads the answer.
func (w *wire) buffer(list []*Statement, prepares bool) buffer {
	size := 1024
	for _, s := range list {
		size += len(s.buf) + messageSize
		if !prepares || w.known[s.SQL] == nil {
			size += len(s.SQL) + 4*len(s.oids)
		}
	}
	if size > maxBuffer {
		return make([]byte, 0, size)
	}
	w.out = slices.Grow(w.out[:0], size)
	return w.out
}

// messageSize is the usual size of a statement in a request, without its text and its values.
const messageSize = 64

// answer reads the answer to one statement of a request that was sent at the given time.
func (s *Statement) answer(p *pgconn.Pipeline, w *wire, fresh *prepared, sent time.Time) error {
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
	r := Reader{words: &w.words, Sent: sent}
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
	s.Tag = tag.String()
	if err == nil {
		err = s.answered(tag.RowsAffected())
	}
	return err
}

// skipped returns the next answer, without the answers to Close of prepared statements.
func skipped(p *pgconn.Pipeline) (any, error) {
	for {
		got, err := p.GetResults()
		if _, closed := got.(*pgconn.CloseComplete); !closed || err != nil {
			return got, err
		}
	}
}

// forget deallocates the statement that was not used for the longest time, if there are too many.
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

// doubt removes statements that may not be prepared, after an error. If the server does not know a prepared statement
// (26000), or its result type has changed (0A000), all statements are prepared again.
func (w *wire) doubt(err error) {
	var pe *pgconn.PgError
	all := errors.As(err, &pe) && (pe.Code == "26000" || pe.Code == "0A000")
	for sql, known := range w.known {
		if all || known.desc == nil {
			delete(w.known, sql)
		}
	}
}
