package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/redact"
)

type logFlags struct{ level, format string }

func (l *logFlags) register(cmd *cobra.Command) {
	l.level, l.format = "info", "text"
	cmd.Flags().Var(&choice{&l.level, []string{"debug", "info", "warn", "error"}}, "log-level", "log from this `LEVEL` on: debug, info, warn, error")
	cmd.Flags().Var(&choice{&l.format, []string{"text", "json"}}, "log-format", "`FORMAT` of the log on stderr: text, or json (one object a line, and nothing else)")
}

// logger writes to stderr; --quiet leaves only errors.
func (a *app) logger(level, format string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level))
	if a.quiet {
		l = slog.LevelError
	}
	return newLogger(a.err, l, format == "json")
}

// serviceLogger is the logger of a long-running command. It also becomes the default logger, to which packages such as
// net/http's client write.
func (a *app) serviceLogger(l logFlags) *slog.Logger {
	log := a.logger(l.level, l.format)
	slog.SetDefault(log)
	return log
}

func newLogger(w io.Writer, level slog.Level, json bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutSecrets}
	if json {
		return slog.New(slog.NewJSONHandler(escaped{w}, o))
	}
	return slog.New(slog.NewTextHandler(cleaned{w}, o))
}

// withoutSecrets removes passwords of URLs from everything that is logged, in case a caller did not.
func withoutSecrets(_ []string, attr slog.Attr) slog.Attr {
	switch v := attr.Value.Any().(type) {
	case string:
		attr.Value = slog.StringValue(redact.Text(v))
	case error:
		attr.Value = slog.StringValue(redact.Text(v.Error()))
	}
	return attr
}

// logFailure logs the error that ends the process, instead of printing it, if the log is JSON.
func (a *app) logFailure(err error) {
	var code exit
	if err == nil || errors.As(err, &code) {
		return
	}
	attrs := []any{"error", err.Error(), "exit", codeOf(err)}
	var usage *usageError
	var refusal *perdure.Error
	switch {
	case errors.As(err, &refusal):
		if refusal.Hint != "" {
			attrs = append(attrs, "hint", refusal.Hint)
		}
		if len(refusal.Fields) > 0 {
			attrs = append(attrs, "errors", refusal.Fields)
		}
	case errors.As(err, &usage) && usage.hint != "":
		attrs = append(attrs, "hint", usage.hint)
	}
	a.logger("error", "json").Error("command failed", attrs...)
}

// logsJSON reports whether the arguments request a log in JSON. It is for calls whose flags could not be parsed.
func logsJSON(root *cobra.Command, args []string) bool {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Flags().Lookup("log-format") == nil {
		return false
	}
	for i, arg := range slices.Backward(rest) { // the last occurrence counts
		switch {
		case arg == "--log-format=json", arg == "--log-format" && i+1 < len(rest) && rest[i+1] == "json":
			return true
		case arg == "--log-format=text", arg == "--log-format":
			return false
		}
	}
	return os.Getenv(envName("log-format")) == "json"
}
