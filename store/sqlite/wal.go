package sqlite

import "os"

// walFile is the write-ahead log as a file. Where it is appended to, the file system has to write its new length with
// each sync as well, and where: half as long again as a sync of what is written over. So the log is made longer ahead of
// SQLite.
type walFile struct {
	file *os.File
	size int64 // when it was looked at last
}

// walStep is by how much the log grows at once.
const walStep = 1 << 20

var walZeros [32 << 10]byte

func openWAL(path string) (w walFile, err error) {
	w.file, err = os.OpenFile(path+"-wal", os.O_RDWR|noFollow, 0)
	return w, err
}

// extend makes the log longer if SQLite has come to its end, and once at the beginning. Only who holds the write lock
// may call it: nobody else writes there then. What it adds is zero, and fits no checksum: what is in the log ends where
// it ended. It does what it can: that the disk is full SQLite finds out by itself.
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
