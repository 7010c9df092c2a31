package sqlite

import "os"

// walFile is the write-ahead log as a file. When a file grows, the file system has to write its new length and position
// with each sync, which takes half as long again as a sync of overwritten bytes. So the log is extended ahead of SQLite.
type walFile struct {
	file *os.File
	size int64 // at the latest check
}

// walStep is by how much the log grows at once.
const walStep = 1 << 20

var walZeros [32 << 10]byte

func openWAL(path string) (w walFile, err error) {
	w.file, err = os.OpenFile(path+"-wal", os.O_RDWR|noFollow, 0)
	return w, err
}

// extend makes the log longer if SQLite has reached its end, and once at the beginning. The caller must be the writer,
// so that no other goroutine appends to the log. The added bytes are zero and match no checksum, so the content of the
// log ends where it ended. Errors are ignored: if the disk is full, SQLite will report it.
func (w *walFile) extend() {
	info, err := w.file.Stat()
	if err != nil {
		return
	}
	was := w.size
	w.size = info.Size()
	if w.size <= was || w.size+walStep > walLimit {
		return
	}
	for end := w.size + walStep; w.size < end; {
		n, err := w.file.WriteAt(walZeros[:], w.size)
		w.size += int64(n)
		if err != nil {
			return
		}
	}
}

func (w *walFile) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}
