package sqlite

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// op is an operation on a file or directory, or the acknowledgement of a job.
type op struct {
	kind opKind
	name string // of the file, in the directory
	at   int64  // offset of a write, or length after a truncation
	data []byte
	job  int // number of the acknowledged job
}

type opKind int

const (
	opWrite opKind = iota
	opTruncate
	opSync // of a file's content
	opCreate
	opUnlink
	opSyncDir
	opAck
)

var (
	callLine   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\d+)`)
	unfinished = regexp.MustCompile(`^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	fdArg      = regexp.MustCompile(`^(\d+)<((?:\\x[0-9a-f]{2})*)>`)
	textArg    = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?`)
)

// readTrace turns the output of strace into operations: those on the files in dir, and the acknowledgements that the
// process prints. It returns an error for an unknown call on such a file, because the simulated disks would be wrong.
func readTrace(text, dir string) (ops []op, err error) {
	started := map[string]string{}
	exists := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := unfinished.FindStringSubmatch(line); m != nil {
			started[m[1]] = m[1] + " " + m[2] + "(" + m[3]
			continue
		}
		if m := resumed.FindStringSubmatch(line); m != nil {
			line = started[m[1]] + m[3]
		}
		m := callLine.FindStringSubmatch(line)
		if m == nil || m[4] == "-1" {
			continue
		}
		o, concerns, err := readCall(m[2], m[3], dir)
		if err != nil {
			return nil, fmt.Errorf("%w: %.200s", err, line)
		}
		if !concerns || o.kind == opCreate && exists[o.name] {
			continue
		}
		if o.kind == opCreate || o.kind == opUnlink {
			exists[o.name] = o.kind == opCreate
		}
		ops = append(ops, o)
	}
	return ops, nil
}

func readCall(call, args, dir string) (o op, concerns bool, err error) {
	if call == "open" || call == "openat" || call == "unlink" || call == "unlinkat" {
		return readName(call, args, dir)
	}
	fd := fdArg.FindStringSubmatch(args)
	if fd == nil {
		return o, false, fmt.Errorf("no file descriptor in the arguments")
	}
	path := unhex(fd[2])
	switch {
	case fd[1] == "1" && call == "write":
		data := textArg.FindStringSubmatch(args)
		o.kind = opAck
		o.job, err = strconv.Atoi(strings.TrimSpace(unhex(data[1])))
		return o, true, err
	case path == dir && call == "fsync":
		return op{kind: opSyncDir}, true, nil
	case filepath.Dir(path) != dir || !durable(path):
		return o, false, nil
	}
	o.name = filepath.Base(path)
	last := args[strings.LastIndex(args, " ")+1:]
	switch call {
	case "pwrite64":
		data := textArg.FindStringSubmatch(args)
		if data == nil || data[2] != "" {
			return o, false, fmt.Errorf("the data is truncated: strace needs a larger -s")
		}
		o.kind, o.data = opWrite, []byte(unhex(data[1]))
		o.at, err = strconv.ParseInt(last, 10, 64)
	case "ftruncate":
		o.kind = opTruncate
		o.at, err = strconv.ParseInt(last, 10, 64)
	case "fsync", "fdatasync":
		o.kind = opSync
	default:
		err = fmt.Errorf("unknown call %s: add its effect to readCall", call)
	}
	return o, true, err
}

func readName(call, args, dir string) (o op, concerns bool, err error) {
	name := textArg.FindStringSubmatch(args)
	if name == nil {
		return o, false, fmt.Errorf("no file name in the arguments")
	}
	path := unhex(name[1])
	if filepath.Dir(path) != dir || !durable(path) || strings.HasPrefix(call, "open") && !strings.Contains(args, "O_CREAT") {
		return o, false, nil
	}
	o = op{kind: opUnlink, name: filepath.Base(path)}
	if strings.HasPrefix(call, "open") {
		o.kind = opCreate
		if strings.Contains(args, "O_TRUNC") {
			err = fmt.Errorf("open with O_TRUNC: add its effect to readName")
		}
	}
	return o, true, err
}

// durable reports whether the content of a file matters after a power cut. The lock file and the index in shared memory
// do not.
func durable(path string) bool {
	return !strings.HasSuffix(path, ".lock") && !strings.HasSuffix(path, "-shm")
}

func unhex(s string) string {
	b, _ := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	return string(b)
}

// disk is what was written, and the part of it that was synced.
type disk struct {
	names       map[string]*inode // as the process sees them
	synced      map[string]*inode // as they are on the disk for certain
	renamed     []op              // creations and removals that are not synced
	created     []*inode          // the inodes of these creations
	checkpoints int               // writes to the database file itself
}

type inode struct {
	synced  []byte
	pending []op
}

// fate is what a power cut does to an operation that was not synced.
type fate int

const (
	keptWhole fate = iota
	lostWhole
	torn
	fates
)

const sector = 512

func newDisk() *disk { return &disk{names: map[string]*inode{}, synced: map[string]*inode{}} }

func (d *disk) apply(o *op) {
	switch o.kind {
	case opCreate:
		n := &inode{}
		d.names[o.name] = n
		d.renamed, d.created = append(d.renamed, *o), append(d.created, n)
	case opUnlink:
		delete(d.names, o.name)
		d.renamed, d.created = append(d.renamed, *o), append(d.created, nil)
	case opSyncDir:
		d.synced = d.entries(func() fate { return keptWhole })
		d.renamed, d.created = nil, nil
	case opSync:
		n := d.names[o.name]
		n.synced = n.content(func() fate { return keptWhole })
		n.pending = nil
	case opWrite, opTruncate:
		n := d.names[o.name]
		n.pending = append(n.pending, *o)
		if o.kind == opWrite && strings.HasSuffix(o.name, ".db") {
			d.checkpoints++
		}
	}
}

// cut returns the files as they may be after a power cut; draw decides the fate of each operation that was not synced.
func (d *disk) cut(draw func() fate) map[string][]byte {
	files := map[string][]byte{}
	for name, n := range d.entries(draw) {
		files[name] = n.content(draw)
	}
	return files
}

func (d *disk) entries(draw func() fate) map[string]*inode {
	names := map[string]*inode{}
	for name, n := range d.synced {
		names[name] = n
	}
	for i, o := range d.renamed {
		switch {
		case draw() == lostWhole:
		case o.kind == opCreate:
			names[o.name] = d.created[i]
		default:
			delete(names, o.name)
		}
	}
	return names
}

func (n *inode) content(draw func() fate) []byte {
	data := append([]byte(nil), n.synced...)
	for i := range n.pending {
		o := &n.pending[i]
		fate := draw()
		switch {
		case fate == lostWhole:
		case o.kind == opTruncate:
			data = resize(data, o.at)
		case fate == keptWhole:
			data = put(data, o.at, o.data)
		default: // torn: by sectors of the disk
			for from := int64(0); from < int64(len(o.data)); {
				to := min(from+sector-(o.at+from)%sector, int64(len(o.data)))
				if draw() != lostWhole {
					data = put(data, o.at+from, o.data[from:to])
				}
				from = to
			}
		}
	}
	return data
}

func put(data []byte, at int64, piece []byte) []byte {
	if end := at + int64(len(piece)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[at:], piece)
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}
