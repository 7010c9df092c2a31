package main

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/operate"
)

func (a *app) logsCmd() *cobra.Command {
	q := operate.LogQuery{}
	stream := string(operate.Stdout)
	tail := 0
	cmd := &cobra.Command{
		Use:        "logs JOB STEP",
		SuggestFor: []string{"log", "output"},
		Short:      "Print what a run has written",
		Long: `Prints what the latest run of a step has written on its standard output. Only agents that store logs have
some. A log keeps its first and its last 8 MiB; a line such as "… 312 MiB left out …" stands for the rest.

With --follow it goes on until the run has ended. If the step never ran, it waits for its first run.

On a terminal, characters that would control it are replaced; elsewhere the bytes are printed as they are.
With -o json each part is one object, with its data in base64.`,
		Example: `  perdure logs video-7 render
  perdure logs video-7/render --follow
  perdure logs video-7 render --run 2 --stream stderr --tail 100`,
		Args:              argsOf(1, 2, "JOB STEP, or JOB/STEP"),
		ValidArgsFunction: a.completeStep(),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.Job, q.Step, err = stepArgs(args); err != nil {
				return err
			}
			if q.Stream = operate.LogStream(stream); q.Stream != operate.Stdout && q.Stream != operate.Stderr {
				return &usageError{msg: "--stream must be stdout or stderr"}
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
				return a.logs(ctx, t, q, tail)
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().Int64Var(&q.Run, "run", 0, "`NUMBER` of the run (default: the latest run)")
	cmd.Flags().StringVar(&stream, "stream", stream, "stdout or stderr")
	cmd.Flags().IntVar(&tail, "tail", 0, "begin with the last `LINES` that are stored (default: with the first line)")
	_ = cmd.RegisterFlagCompletionFunc("stream", cobra.FixedCompletions([]string{"stdout", "stderr"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const (
	maxTailLines = 100_000
	// bytesOfLine is how many bytes are requested for each line of --tail. Longer lines are fewer.
	bytesOfLine = 1 << 10
)

func (a *app) logs(ctx context.Context, svc operate.Logs, q operate.LogQuery, tail int) error {
	p := &logPrinter{app: a, skip: tail}
	if tail > 0 {
		q.Tail = max(int64(tail)*bytesOfLine, 64<<10)
	}
	err := svc.ReadLog(ctx, q, p.print)
	p.flush()
	return err
}

// logPrinter prints the parts of a log.
type logPrinter struct {
	*app
	skip    int    // print only so many of the last lines that are stored at first; 0: all
	held    []byte // what is not yet printed: lines of which some are skipped, or the beginning of a character
	started bool
	size    int64 // where the log ended at first
	broken  bool  // the line before is not at its end
}

func (p *logPrinter) print(part *operate.LogPart) error {
	if p.out.broken() {
		return exit(exitInterrupted) // stdout is closed
	}
	if p.json() {
		return p.object(part)
	}
	if !p.started {
		p.started, p.size = true, part.Size
	}
	if part.LeftOut > 0 && p.skip == 0 {
		p.flush()
		if p.broken {
			p.printf("\n")
		}
		p.printf("%s\n", operate.LeftOutText(part.LeftOut))
		p.broken = false
	}
	p.held = append(p.held, part.Data...)
	if p.skip > 0 {
		if part.Next() < p.size {
			return nil
		}
		p.held = endOfText(p.held, p.skip)
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
		text = endOfText(text, p.skip)
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

// endOfText returns the last n lines of a text.
func endOfText(text []byte, n int) []byte {
	end := len(bytes.TrimSuffix(text, []byte("\n")))
	for ; n > 0; n-- {
		if end = bytes.LastIndexByte(text[:end], '\n'); end < 0 {
			return text
		}
	}
	return text[end+1:]
}
