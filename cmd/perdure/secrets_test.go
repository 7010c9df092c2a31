package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// marker is the password in the URLs below. No part of it is part of a word.
const marker = "Hx7qZ2"

// wrongURLs are common mistakes in the URL of a store or a server with a password; ~ stands for the password.
var wrongURLs = []string{
	"postgres://u:~", "postgres://u:~/d", "postgres://u:a/~@127.0.0.1:1/d", "postgres://u:a?~@127.0.0.1:1/d", "postgres://u:a#~@127.0.0.1:1/d",
	"postgres://u:12/~@127.0.0.1:1/d", "postgres://u:12?~@127.0.0.1:1/d", "postgres://u:12#~@127.0.0.1:1/d", "postgres://u:a%zz~@127.0.0.1:1/d",
	"postgres://u:a ~@127.0.0.1:1/d", "postgres://u:~@127.0.0.1:port/d", "postgres://u:~@[::1/d", "postgres://u:~@127.0.0.1:1/d?sslmode=wrong",
	"postgres://127.0.0.1:1/d?sslmode=wrong&password=~", "postgres://127.0.0.1:1/d?password=~&pool_max_conns=x", "postgres://127.0.0.1:99999/d?password=~",
	"postgres://127.0.0.1:1/d?sslmode=wrong%20password=~", "postgres://127.0.0.1:1/d?target_session_attrs=x%20password=~", "postgres://u%3A~@127.0.0.1:port/d", "postgres://u:a@~@127.0.0.1:1/d", "postgres://u:a@~@127.0.0.1:1,127.0.0.2:1/d",
	"postgres:u:~@127.0.0.1/d", "postgres:/u:~@127.0.0.1/d", "mysql://u:~@127.0.0.1/d", "u:~@127.0.0.1/d", "host=127.0.0.1 password=~", "password='a ~' host=127.0.0.1",
	"sqlite://u:~@127.0.0.1/d", "sqlite:x.db?password=~", "http://u:~@127.0.0.1:port", "http://u:a/~@127.0.0.1:1", "http://u:a%zz~@127.0.0.1:1", "https://u:~",
	"http://u:~@127.0.0.1:1?x=y", "http://127.0.0.1:1?password=~", "http://u:~@127.0.0.1:1#x", "http://127.0.0.1:1#~", "ftp://u:~@127.0.0.1:1", "//u:~@127.0.0.1:1",
}

// unreachable are valid URLs at which no server listens.
var unreachable = map[string][]string{
	"store":  {"postgres://u:~@127.0.0.1:1/d", "postgres://127.0.0.1:1/d?user=u&password=~", "postgres://u:~@"},
	"server": {"http://u:~@127.0.0.1:1", "https://u%3A:~@127.0.0.1:1/perdure"},
}

// argumentsOf are the arguments without which a command does not read its flags.
var argumentsOf = map[string][]string{
	"get": {"j"}, "watch": {"j"}, "history": {"j"}, "undo": {"j"}, "redo": {"j"}, "resume": {"j"}, "give-up": {"j", "--reason", "r"},
	"settle": {"j/s", "--as", "done", "--reason", "r"}, "skip": {"j/s", "--reason", "r"}, "stop": {"j/s", "--reason", "r"}, "edit": {"j/s", "--input", "{}"},
	"limits set": {"agent:a", "1"}, "limits rm": {"agent:a"}, "alerts close": {"1"}, "agent": {"--agents", "shell"}, "chaos": {"--for", "1s", "--listen", "127.0.0.1:0"},
	"serve": {"--listen", "127.0.0.1:0"}, "run": {"FILE"}, "submit": {"FILE"}, "validate": {"FILE"}, "__complete": {"get", ""},
}

// I18: whatever is wrong with the URL of a store or a server, and however it is given, nothing that any command prints or
// logs has the password in it.
func TestNoPasswordIsShown(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("type: a\nsteps: {s: {agent: http, with: {url: \"http://127.0.0.1:1\"}, limits: [{name: l}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(line []string) {
		t.Helper()
		out, talk := inProcess(t, line...)
		if strings.Contains(out+talk, marker) {
			t.Errorf("perdure %q shows the password:\n%s%s", line, out, talk)
		}
		if out+talk == "" {
			t.Errorf("perdure %q says nothing", line)
		}
	}
	calls := 0
	eachCommand((&app{}).tree(), nil, func(words []string, flags []string) {
		args := words
		for _, a := range argumentsOf[strings.Join(words, " ")] {
			if a == "FILE" {
				a = file
			}
			args = append(args[:len(args):len(args)], a)
		}
		for _, flag := range flags {
			urls := wrongURLs
			calls++
			whole := slices.Contains([]string{"serve", "list"}, words[0])
			if whole {
				urls = slices.Concat(urls, unreachable[flag])
			}
			for i, u := range urls {
				if !whole && i%4 != calls%4 { // a quarter of them for each other command: all read URLs alike
					continue
				}
				u = strings.ReplaceAll(u, "~", marker)
				switch (i/4 + i) % 3 {
				case 0:
					check(append(args[:len(args):len(args)], "--"+flag, u))
				case 1:
					check(append(args[:len(args):len(args)], "--"+flag+"="+u))
				default:
					t.Setenv(envName(flag), u)
					check(args)
					os.Unsetenv(envName(flag))
				}
				if words[0] == "list" || words[0] == "serve" { // the URL at the wrong place
					check(append(words[:len(words):len(words)], u))
				}
			}
		}
		for _, flag := range flags { // a default that --help shows
			t.Setenv(envName(flag), "postgres://u:"+marker+"@127.0.0.1:1/d")
		}
		check(append(words[:len(words):len(words)], "--help"))
		for _, flag := range flags {
			os.Unsetenv(envName(flag))
		}
	})
	if calls < 30 {
		t.Errorf("only %d commands with a URL were tried", calls)
	}
	for _, line := range [][]string{
		{"serve", "--public-url", "https://u:" + marker + "@h"}, {"serve", "--public-url", "https://u:a%zz" + marker + "@h"}, {"serve", "--public-url", "u:" + marker},
		{"serve", "--allowed-hosts", "https://u:" + marker + "@h"}, {"serve", "--listen", "http://u:" + marker + "@h"}, {"run", "postgres://u:" + marker + "@h/d"},
		{"submit", "http://u:" + marker + "@h/d"}, {"get", "http://u:" + marker + "@h/d", "j"}, {"http://u:" + marker + "@h/d"}, {"chaos", "http://u:" + marker + "@h/d"},
		{"list", "--output", "http://u:" + marker + "@h/d"}, {"serve", "--shell-env", "TOKEN=" + marker}, {"validate", "postgres://u:" + marker + "@h/d"},
	} {
		check(line)
	}
}

// eachCommand calls fn for each command that takes --store or --server, with those of the two that it takes.
func eachCommand(cmd *cobra.Command, words []string, fn func(words, flags []string)) {
	for _, c := range cmd.Commands() {
		eachCommand(c, append(words[:len(words):len(words)], c.Name()), fn)
	}
	var flags []string
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if (f.Name == "store" || f.Name == "server") && takes(cmd, f.Name) {
			flags = append(flags, f.Name)
		}
	})
	if cmd.Runnable() && len(flags) > 0 {
		fn(words, flags)
	}
}

// The command that a message suggests has no password in it either.
func TestShownArguments(t *testing.T) {
	for arg, want := range map[string]string{
		"--store=postgres://u:" + marker + "@h/d": "--store=postgres://u:…@h/d",
		"postgres://u:" + marker + " x@h/d":       "postgres://u:…@h/d",
		"--server":                                "--server",
		"order.yaml":                              "order.yaml",
		"url=http://u:" + marker + "@h":           "url=http://u:…@h",
		"password=" + marker:                      "password=…",
		"sku=tea-12":                              "sku=tea-12",
		"--timeout=5m":                            "--timeout=5m",
	} {
		if got := shownArg(arg); got != want {
			t.Errorf("%q: %q, not %q", arg, got, want)
		}
	}
}
