package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// terminal returns both ends of a pseudo-terminal.
func terminal(t *testing.T) (mine, its *os.File) {
	t.Helper()
	mine, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals: ", err)
	}
	t.Cleanup(func() { _ = mine.Close() })
	if err := unix.IoctlSetPointerInt(int(mine.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(mine.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = its.Close() })
	return mine, its
}

// If the count has ended before it found a job, the act is not over: there may be jobs.
func TestAnUnfinishedCountIsNoReasonToEnd(t *testing.T) {
	started := false
	url := serving(t, &resttest.Service{OnPreviewBulk: cappedPreview, OnStartBulk: func(context.Context, operate.BulkRequest) (*operate.BulkView, error) {
		started = true
		v := resttest.Bulk()
		v.State, v.Refused = operate.BulkDone, 0
		return v, nil
	}})
	mine, its := terminal(t)
	if _, err := mine.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := run([]string{"undo", "--type", "order", "--reason", "x", "--server", url}, its, out, its)
	said := make([]byte, 1<<12)
	n, err := mine.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 || !started || strings.Contains(string(said[:n]), "no job matches") {
		t.Errorf("exit %d, started %t: %s", code, started, said[:n])
	}
}
