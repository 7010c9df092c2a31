//go:build !crashpoints

package crashpoint

import (
	"errors"
	"os"
)

// Here does nothing.
func Here(Point) {}

// Check refuses to start if the environment variable for crash points is set in a build without them: otherwise a test
// that sets it would pass without a crash.
func Check() error {
	for _, name := range []string{Env, EnvLog, EnvDeaths} {
		if os.Getenv(name) != "" {
			return errors.New(name + " is set, and this build has no crash points: unset it, or build with -tags crashpoints")
		}
	}
	return nil
}
