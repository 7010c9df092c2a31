package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) logsCmd() *cobra.Command {
	q := operate.LogQuery{}
	stream, tail := "", 0
	cmd := &cobra.Command{
		Use:        "logs JOB STEP",
		SuggestFor: []string{"log", "output"},
		Short:      "Print what a run has written",
		Long: `Prints what the latest run of a step has written: its stdout on stdout, and its stderr on stderr. Only agents
that store logs have some. A log keeps its first and its last 8 MiB; a line such as "… 312 MiB left out …"
stands for the rest.

With --stream, one of the two is printed, on stdout. With --follow it goes on until the log is complete, or
until the run has ended and no bytes arrive for 10 seconds (30 if its host is not silent). If the step never
ran, it waits for its first run. Without --follow, all of stdout is printed before stderr.

On a terminal, characters that would control it are replaced; elsewhere the bytes are printed as they are.
With -o json each part is one object on stdout, with its stream, and its data in base64. --tail then begins
with the last LINES KiB of each stream, at least 64 KiB.`,
		Example: `  perdure logs video-7 render
  perdure logs video-7/render --follow
  perdure logs video-7 render --run 2 --stream stderr --tail 100`,
		Args:              argsOf(1, 2, "JOB STEP, or JOB/STEP"),
		ValidArgsFunction: a.completeStep(),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.Job, q.Step, err = stepArgs(args); err != nil {
				return err
			}
			streams := logStreams
			if one, _ := given(cmd, "stream"); one {
				if streams = []operate.LogStream{operate.LogStream(stream)}; !slices.Contains(logStreams, streams[0]) {
					return &usageError{msg: "--stream must be stdout or stderr"}
				}
			}
			if q.Run < 0 || cmd.Flags().Changed("run") && q.Run == 0 {
				return &usageError{msg: "--run must be 1 or more"}
			}
			if tail < 0 || tail > maxTailLines || cmd.Flags().Changed("tail") && tail == 0 {
				return usagef("--tail must be 1 to %d", maxTailLines)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				ctx, cancel := a.bounded(ctx)
				defer cancel()
				return a.logs(ctx, t, q, streams, tail)
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "go on until the log is complete")
	cmd.Flags().Int64Var(&q.Run, "run", 0, "`NUMBER` of the run (default: the latest run)")
	cmd.Flags().StringVar(&stream, "stream", "", "print only this `STREAM`, on stdout: stdout or stderr (default: both)")
	cmd.Flags().IntVar(&tail, "tail", 0, "begin with the last `LINES` of each stream; fewer if their mean length is over 1 KiB (default: with the first line)")
	ownVariables(cmd, "logs", "stream")
	_ = cmd.RegisterFlagCompletionFunc("stream", cobra.FixedCompletions([]string{"stdout", "stderr"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const (
	maxTailLines = 100_000
	// bytesOfLine is the number of bytes requested for each line of --tail. If lines are longer, fewer lines are printed.
	bytesOfLine = 1 << 10
)

// logStreams are the streams of a run.
var logStreams = []operate.LogStream{operate.Stdout, operate.Stderr}

// printing returns an app whose results go to the stream of this process that has the name of the log's stream.
func (a *app) printing(stream operate.LogStream) *app {
	if stream != operate.Stderr || a.json() {
		return a
	}
	own := *a
	own.out, own.st, own.tty = &printer{w: a.err}, a.errSt, nil
	if f, ok := a.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		own.tty = f
	}
	return &own
}

func (a *app) logs(ctx context.Context, t *target, q operate.LogQuery, streams []operate.LogStream, tail int) error {
	latest := q.Run == 0
	if tail > 0 {
		q.Tail = max(int64(tail)*bytesOfLine, 64<<10)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // objects of JSON are printed one at a time
	var all sync.WaitGroup
	followers := make([]*logFollower, len(streams))
	for i, stream := range streams {
		p := &logPrinter{app: a, stream: stream, skip: tail}
		if len(streams) > 1 {
			p.app = a.printing(stream)
		}
		l := &logFollower{svc: t, at: q, see: func(part *operate.LogPart) error {
			mu.Lock()
			defer mu.Unlock()
			return p.print(part)
		}}
		l.at.Stream, l.at.Follow = stream, false
		followers[i] = l
		if q.Follow {
			all.Go(func() {
				err := l.finish(ctx, q.Run)
				p.flush()
				if err != nil {
					cancel(err)
				}
			})
			continue
		}
		err := t.ReadLog(ctx, l.at, l.take)
		p.flush()
		if err != nil {
			return err
		}
		q.Run = l.at.Run // of both streams
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	printed, cut := false, false
	for _, l := range followers {
		printed, cut = printed || l.at.Offset > 0, cut || !l.end
	}
	if q.Follow && cut {
		a.talk("the log of run %d is not complete: its holder has not sent the end", followers[0].at.Run)
	}
	if latest && !printed {
		a.hintAtEarlierRun(ctx, t, followers[0].at, streams)
	}
	return nil
}

// earlierRuns is how many runs before the latest one are searched for output.
const earlierRuns = 5

// hintAtEarlierRun says which run before the latest one, which has written nothing, has written something.
func (a *app) hintAtEarlierRun(ctx context.Context, t *target, q operate.LogQuery, streams []operate.LogStream) {
	latest := q.Run
	q.Offset, q.Tail = 0, 1
	for q.Run--; q.Run > max(0, latest-1-earlierRuns); q.Run-- {
		size := int64(0)
		for _, q.Stream = range streams {
			if err := t.ReadLog(ctx, q, func(part *operate.LogPart) error { size += part.Size; return nil }); err != nil {
				return
			}
		}
		if size > 0 {
			a.talk("run %d, the latest, has written nothing; run %d has: perdure logs %s %s --run %d%s", latest, q.Run, q.Job, q.Step, q.Run, t.where)
			return
		}
	}
}

const (
	// logRetry is the pause before a log is followed again, or that of a further run is looked for.
	logRetry = 500 * time.Millisecond
	// logPatience is how long a log that is not complete is followed without new bytes after the end of its run. Before the
	// node ends its answer, it waits, too.
	logPatience = 10 * time.Second
)

// logFollower reads the log of one stream of a step.
type logFollower struct {
	svc operate.Logs
	at  operate.LogQuery // where the next part begins
	see func(*operate.LogPart) error
	cut func(run int64) // is called if the log of a further run begins before that of this run is complete; nil: nothing is called

	// reached: the server has answered before. Only then it is called again after a failure.
	reached bool

	end    bool      // the log of at.Run is complete
	left   bool      // it is not, and the node does not expect that more follows
	newsAt time.Time // when there were new bytes
}

func (l *logFollower) take(part *operate.LogPart) error {
	if further := part.Run != l.at.Run; further || part.Next() != l.at.Offset {
		if further && l.at.Run > 0 && !l.end && l.cut != nil {
			l.cut(l.at.Run)
		}
		l.newsAt = time.Now()
	}
	if err := l.see(part); err != nil {
		return err
	}
	l.reached = true
	l.at.Run, l.at.Offset, l.at.Tail, l.end = part.Run, part.Next(), 0, part.End
	return nil
}

// read follows a log until the node ends its answer.
func (l *logFollower) read(ctx context.Context, q operate.LogQuery) error {
	q.Follow = true
	err := l.svc.ReadLog(ctx, q, l.take)
	l.left = err == nil && !l.end
	return err
}

// followRuns reads the logs of all runs, one after the other, until ctx ends.
func (l *logFollower) followRuns(ctx context.Context) {
	for ctx.Err() == nil {
		q := l.at
		if l.end || l.left {
			q.Run, q.Offset = q.Run+1, 0
		}
		if err := l.read(ctx, q); err != nil || l.end {
			l.pause(ctx)
		}
	}
}

// finish reads the logs up to the end of that of the run last; 0: the latest. It gives up if there are no new bytes for logPatience.
func (l *logFollower) finish(ctx context.Context, last int64) error {
	l.newsAt = time.Now()
	for !l.end || l.at.Run < last {
		q, before := l.at, l.at
		switch {
		case l.at.Run < last && (l.end || l.left):
			q.Run, q.Offset = q.Run+1, 0
		case q.Run == 0:
			q.Run = last
		}
		err := l.read(ctx, q)
		code := perdure.CodeOf(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (!l.reached || code != perdure.CodeUnavailable && code != perdure.CodeTooManyRequests):
			return err
		case l.at != before && err == nil:
		case time.Since(l.newsAt) >= logPatience:
			return err
		default:
			l.pause(ctx)
		}
	}
	return nil
}

func (l *logFollower) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(logRetry):
	}
}

// logPrinter prints the parts of a log.
type logPrinter struct {
	*app
	stream  operate.LogStream // for JSON
	skip    int               // print only so many of the last lines that are stored at first; 0: all
	held    []byte            // what is not yet printed: lines of which some are skipped, or the beginning of a character
	started bool
	cut     bool  // the log has bytes before those that were printed or held first
	size    int64 // where the log ended at first
	broken  bool  // the line before is not at its end
}

func (p *logPrinter) print(part *operate.LogPart) error {
	if p.out.broken() {
		return exit(exitInterrupted) // stdout is closed
	}
	if p.json() {
		return p.object(&struct {
			Stream operate.LogStream `json:"stream"`
			*operate.LogPart
		}{p.stream, part})
	}
	if !p.started {
		p.started, p.size, p.cut = true, part.Size, part.Offset > 0
	}
	switch n := len(p.held); {
	case part.LeftOut == 0:
	case p.skip == 0:
		p.flush()
		if p.broken {
			p.printf("\n")
		}
		p.printf("%s\n", operate.LeftOutText(part.LeftOut))
		p.broken = false
	case n > 0: // between the last lines
		if p.held[n-1] != '\n' {
			p.held = append(p.held, '\n')
		}
		p.held = append(p.held, operate.LeftOutText(part.LeftOut)+"\n"...)
	}
	p.held = append(p.held, part.Data...)
	if p.skip > 0 {
		if part.Next() < p.size {
			return nil
		}
		p.held = endOfText(p.held, p.skip, p.cut)
		p.skip = 0
	}
	text := p.held
	p.held = nil
	if p.tty != nil {
		n := len(text)
		for i := 1; i < utf8.UTFMax && i <= n; i++ {
			if utf8.RuneStart(text[n-i]) {
				if !utf8.FullRune(text[n-i:]) {
					text, p.held = text[:n-i], bytes.Clone(text[n-i:])
				}
				break
			}
		}
	}
	p.write(text)
	return nil
}

// flush prints what is held.
func (p *logPrinter) flush() {
	text := p.held
	if p.skip > 0 {
		text = endOfText(text, p.skip, p.cut)
	}
	p.held = nil
	p.write(text)
}

var terminalLines = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", "        ")

func (p *logPrinter) write(text []byte) {
	if len(text) == 0 {
		return
	}
	p.broken = text[len(text)-1] != '\n'
	if p.tty != nil {
		text = []byte(p.st.safe(terminalLines.Replace(string(text))))
	}
	_, _ = p.out.Write(text) // it keeps its error
}

// endOfText returns the last n lines of a text. If cut, the text may begin within a line, which is left out unless it is the
// only one.
func endOfText(text []byte, n int, cut bool) []byte {
	last := len(bytes.TrimSuffix(text, []byte("\n")))
	end := last
	for ; n > 0; n-- {
		if end = bytes.LastIndexByte(text[:end], '\n'); end < 0 {
			if first := bytes.IndexByte(text[:last], '\n'); cut && first >= 0 {
				return text[first+1:]
			}
			return text
		}
	}
	return text[end+1:]
}
