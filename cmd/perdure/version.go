package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/timetable"
)

// version is set by the build: -ldflags "-X main.version=1.0.0".
var version string

// buildVersion returns the version, or what the build knows about its source.
func buildVersion() string {
	if version != "" {
		return version
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
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version of this program, what it was built with and for, and the version of the time zones
that schedules use: those of the system or, if it has none, those that are embedded.`,
		Example: "  perdure version -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			zones, from := timetable.Zones()
			if from == "" {
				from = "embedded"
			}
			if a.json() {
				b, err := json.Marshal(map[string]string{"version": buildVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "tzdata": zones, "tzdataFrom": from})
				a.printf("%s\n", b)
				return err
			}
			a.printf("perdure %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			a.printf("time zones %s (%s)\n", plain(zones), plain(from))
			return nil
		},
	}
	uses(cmd, "output")
	return cmd
}
