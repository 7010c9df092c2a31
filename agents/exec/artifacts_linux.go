package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/operate"
)

const (
	transferPause = 500 * time.Millisecond // before a transfer that was cut goes on. It doubles up to transferMost
	transferMost  = 15 * time.Second
	// placePatience is how long after the last byte that has arrived the files of a run are tried to be fetched. Afterwards the
	// run is returned, because another host may reach what this one does not.
	placePatience = 5 * time.Minute
)

// Codes of runs whose artifacts could not be placed or stored.
const (
	codeMissing     = "artifactMissing"
	codeMismatch    = "artifactMismatch"
	codeUnavailable = "unavailable"
	codeNoSpace     = "noSpace"
	codeFileMissing = "fileMissing"
	codeTooLarge    = "tooLarge"
	codeCollect     = "collect"
)

// errArtifacts is the error of inputs with artifacts on a host that has none.
var errArtifacts = errors.New("this host reaches no artifacts: leave out files and collect")

// isWaiting reports whether neither this nor an earlier process may have started the command of a run.
func (a *Agent) isWaiting(dir string, r *keeper.Run) bool {
	if a.cfg.Slurm != nil {
		_, err := readSent(filepath.Join(dir, sentFile))
		return errors.Is(err, fs.ErrNotExist)
	}
	_, err := keeper.ReadKeeper(dir)
	return errors.Is(err, fs.ErrNotExist) && r.Boot == a.boot
}

// place puts the files of a run into its working directory, and makes sure that what it will collect can be stored. An
// earlier process may have done a part of that: it is done again as a whole, because nothing was started.
func (a *Agent) place(ctx context.Context, dir string, r *keeper.Run, in *Input, run *perdure.Run) (*keeper.Run, error) {
	if len(in.Files)+len(in.Collect) == 0 || !a.isWaiting(dir, r) {
		return r, nil
	}
	user, err := a.userOf(run)
	if err != nil {
		return nil, err
	}
	failure := a.fetchAll(ctx, dir, in, user)
	if failure == nil { // the lock was extended meanwhile
		if r, err = a.prepare(dir, in, run, user); err == nil {
			return r, nil
		}
		failure = placeFailureOf(ctx, err)
	}
	if ctx.Err() != nil {
		if a.cfg.Ending(context.Cause(ctx)) == runcontext.Leave {
			return nil, keeper.ErrLeft
		}
		failure = &placeFailure{codeUnavailable, keeper.ErrNotStarted}
	}
	_ = os.RemoveAll(filepath.Join(dir, keeper.WorkDir))
	e := keeper.Exit{Cause: keeper.NotStarted, Code: failure.code, Message: failure.err.Error()}
	if a.cfg.Slurm == nil { // a later process must not start what this one has reported as not started
		if err := keeper.Refuse(dir, e); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, a.notStarted(err)
		}
	}
	return nil, a.startError(in, &e)
}

// placeFailure is why the files of a run were not placed.
type placeFailure struct {
	code string
	err  error
}

func (a *Agent) fetchAll(ctx context.Context, dir string, in *Input, user *User) *placeFailure {
	work := filepath.Join(dir, keeper.WorkDir)
	err := os.RemoveAll(work)
	if err == nil {
		err = os.Mkdir(work, 0o700)
	}
	if err == nil && len(in.Collect) > 0 {
		err = a.probe(ctx)
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(work)
	}
	if err == nil {
		defer func() { _ = root.Close() }()
		for _, name := range slices.Sorted(maps.Keys(in.Files)) {
			if err = a.fetch(ctx, root, name, plain.Artifact(in.Files[name])); err != nil {
				err = fmt.Errorf("files: %s: %w", name, err)
				break
			}
		}
	}
	if err == nil && user != nil && a.cfg.Slurm == nil {
		err = chown(root, user)
	}
	if err == nil {
		return nil
	}
	return placeFailureOf(ctx, err)
}

func placeFailureOf(ctx context.Context, err error) *placeFailure {
	var failure *placeFailure
	switch code := perdure.CodeOf(err); {
	case errors.As(err, &failure):
		return &placeFailure{failure.code, err}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), code == perdure.CodeNoSpace:
		return &placeFailure{codeNoSpace, err}
	case code == perdure.CodeNotFound:
		return &placeFailure{codeMissing, err}
	case code == perdure.CodeUnavailable, code == perdure.CodeTooManyRequests, ctx.Err() != nil:
		return &placeFailure{codeUnavailable, err}
	}
	return &placeFailure{"start", err}
}

func (f *placeFailure) Error() string { return f.err.Error() }

// probe returns an error if no artifact can be stored: before a command runs for hours whose results would be lost.
func (a *Agent) probe(ctx context.Context) error {
	return again(ctx, placePatience, func(func()) error {
		_, err := operate.PutArtifact(ctx, a.cfg.Artifacts, strings.NewReader(""))
		return err
	})
}

// again calls f until it does not fail for a cause that may pass. f calls progressed when bytes have arrived. patience bounds the
// time since then; 0: until ctx ends.
func again(ctx context.Context, patience time.Duration, f func(progressed func()) error) error {
	pause, last := transferPause, time.Now()
	progressed := func() { pause, last = transferPause, time.Now() }
	for ; ; pause = min(2*pause, transferMost) {
		err := f(progressed)
		if code := perdure.CodeOf(err); err == nil || code != perdure.CodeUnavailable && code != perdure.CodeTooManyRequests || patience > 0 && time.Since(last) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// arrival is called when bytes are written to it.
type arrival func()

func (a arrival) Write(b []byte) (int, error) {
	a()
	return len(b), nil
}

// fetch reads an artifact into a file of the working directory, and compares it with its hash.
func (a *Agent) fetch(ctx context.Context, root *os.Root, name string, from plain.Artifact) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700) // it may be a program
	if err != nil {
		return err
	}
	hash, at := sha256.New(), int64(0)
	err = again(ctx, placePatience, func(progressed func()) error {
		content, err := a.cfg.Artifacts.OpenArtifact(ctx, from.Hash)
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		if content.Size() != from.Size {
			return &placeFailure{codeMismatch, fmt.Errorf("the artifact has %d bytes, and not %d", content.Size(), from.Size)}
		}
		if _, err := content.Seek(at, io.SeekStart); err != nil {
			return err
		}
		n, err := io.Copy(io.MultiWriter(f, hash, arrival(progressed)), io.LimitReader(content, from.Size-at))
		at += n
		return err
	})
	err = errors.Join(err, f.Close())
	if err == nil && (at != from.Size || plain.ArtifactHashPrefix+hex.EncodeToString(hash.Sum(nil)) != from.Hash) {
		err = &placeFailure{codeMismatch, errors.New("the artifact is damaged: the bytes that were read have another hash; store it again (perdure artifacts put FILE), and resume the step")}
	}
	return err
}

// chown gives all that was placed to the user of the command.
func chown(root *os.Root, user *User) error {
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(name, int(user.UID), int(user.GID))
	})
}

// collected is a file that was stored as an artifact.
type collected struct {
	Artifact string `json:"$artifact"`
	Size     int64  `json:"size"`
	Type     string `json:"type,omitempty"`
	Path     string `json:"path"`
}

// collect stores the files of a command that has ended well. A later process does it again, if this one does not come to the
// end of it: artifacts that are there are not sent again.
func (a *Agent) collect(ctx context.Context, dir string, in *Input) (map[string][]collected, error) {
	if len(in.Collect) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(filepath.Join(dir, keeper.WorkDir))
	if err != nil {
		return nil, perdure.Failed(fmt.Errorf("collect: %w", err), codeCollect)
	}
	defer func() { _ = root.Close() }()
	names := slices.Sorted(maps.Keys(in.Collect))
	found, err := findFiles(root, in.Collect, names)
	if err != nil {
		return nil, err
	}
	all := map[string][]collected{}
	for _, name := range names {
		for _, file := range found[name] {
			one, err := a.store(ctx, root, file)
			switch {
			case err == nil:
				all[name] = append(all[name], one)
				continue
			case ctx.Err() != nil && a.cfg.Ending(context.Cause(ctx)) == runcontext.Leave:
				return nil, keeper.ErrLeft
			case ctx.Err() != nil:
				return nil, perdure.Failed(errors.New("stopped while its files were stored"), "stopped")
			case perdure.CodeOf(err) == perdure.CodeNoSpace:
				return nil, perdure.Failed(fmt.Errorf("collect: %s: %w", name, err), codeNoSpace)
			}
			return nil, perdure.Failed(fmt.Errorf("collect: %s: %s: %w", name, file, err), codeCollect)
		}
	}
	return all, nil
}

// findFiles returns the files that each pattern matches. Links are followed as long as they do not lead out of the
// directory; what is no regular file is left out.
func findFiles(root *os.Root, patterns map[string]pattern, names []string) (map[string][]string, error) {
	found, search := map[string][]string{}, &fileSearch{root: root}
	n, size := 0, int64(0)
	for _, name := range names {
		err := search.files(".", strings.Split(string(patterns[name]), "/"), func(file string, info fs.FileInfo) error {
			found[name] = append(found[name], file)
			n, size = n+1, size+info.Size()
			if n > MaxFiles || size > plain.MaxArtifactBytes {
				return perdure.Failed(fmt.Errorf("collect: more than %d files or %d bytes", MaxFiles, int64(plain.MaxArtifactBytes)), codeTooLarge)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if found[name] == nil {
			return nil, perdure.Failed(fmt.Errorf("collect: %s: the command has left no file %s", name, patterns[name]), codeFileMissing)
		}
	}
	return found, nil
}

// maxEntries bounds the names that a search reads.
const maxEntries = 100_000

// fileSearch finds files by patterns. fs.Glob would open pipes, and wait for their writers.
type fileSearch struct {
	root    *os.Root
	entries int // that were read
}

// files calls found for each regular file below dir whose path matches, in order. What cannot be read is left out.
func (s *fileSearch) files(dir string, parts []string, found func(file string, info fs.FileInfo) error) error {
	names := []string{parts[0]}
	if strings.ContainsAny(parts[0], `*?[\`) {
		var err error
		if names, err = s.matches(dir, parts[0]); err != nil {
			return err
		}
	}
	for _, name := range names {
		file := path.Join(dir, name)
		info, err := s.root.Stat(file)
		switch {
		case err != nil:
		case len(parts) > 1 && info.IsDir():
			err = s.files(file, parts[1:], found)
		case len(parts) == 1 && info.Mode().IsRegular():
			err = found(file, info)
		}
		if failure := (*perdure.Failure)(nil); errors.As(err, &failure) {
			return err
		}
	}
	return nil
}

// matches returns the names in a directory that match, in order.
func (s *fileSearch) matches(dir, pattern string) (names []string, err error) {
	d, err := s.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = d.Close() }() // it was only read
	for {
		list, err := d.Readdirnames(1000)
		if s.entries += len(list); s.entries > maxEntries {
			return nil, perdure.Failed(fmt.Errorf("collect: more than %d names in the directories that the patterns name", maxEntries), codeTooLarge)
		}
		for _, name := range list {
			if ok, _ := path.Match(pattern, name); ok { // the pattern was checked
				names = append(names, name)
			}
		}
		if err != nil { // the end of the directory
			slices.Sort(names)
			return names, nil
		}
	}
}

// store stores one file. It goes on until the run ends: the command has done its work.
func (a *Agent) store(ctx context.Context, root *os.Root, file string) (collected, error) {
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a process that was not found may have made it a pipe
	if err != nil {
		return collected{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return collected{}, errors.Join(err, errors.New("no regular file any more"))
	}
	var state *operate.ArtifactState
	err = again(ctx, 0, func(func()) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		state, err = operate.PutArtifact(ctx, a.cfg.Artifacts, f)
		return err
	})
	if err != nil {
		return collected{}, err
	}
	return collected{Artifact: state.Artifact, Size: state.Size, Type: mime.TypeByExtension(path.Ext(file)), Path: with.Plain(file)}, nil
}
