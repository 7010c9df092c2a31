package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) validateCmd() *cobra.Command {
	var input inputFlags
	cmd := &cobra.Command{
		Use:        "validate FILE…",
		SuggestFor: []string{"lint", "verify"},
		Short:      "Say what is wrong with definitions; silent when they are fine",
		Long: `Reads all documents of all files and says of each fault where it is (FILE:LINE:COL) and how to mend
it, on stderr, exit 2. When all is fine it says nothing and exits 0. - is stdin. It needs no server
and no store.`,
		Example: `  perdure validate order.yaml
  generate | perdure validate -`,
		Args: argsOf(1, -1, "one or more files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			_, err := a.load(files, input)
			return err
		},
		ValidArgsFunction: completeFiles,
	}
	uses(cmd)
	input.register(cmd)
	return cmd
}

func (a *app) schemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of definitions",
		Long:    `Prints the JSON Schema that editors complete and check definitions by.`,
		Example: "  perdure schema > job.schema.json\n  # and as a file's first line: # yaml-language-server: $schema=./job.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.printf("%s\n", jobSchema())
			return nil
		},
	}
	uses(cmd)
	return cmd
}

// release is set by the build: -ldflags "-X main.release=1.0.0".
var release string

// version is the release, or what the build knows of its source.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	v, dirty := "dev", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			v = "dev-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return v + dirty
}

func (a *app) versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    `Prints the version of this program, and what it was built with and for.`,
		Example: "  perdure version -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.json() {
				b, err := json.Marshal(map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
				a.printf("%s\n", b)
				return err
			}
			a.printf("perdure %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	uses(cmd, "output")
	return cmd
}
