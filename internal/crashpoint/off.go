//go:build !crashpoints

package crashpoint

import (
	"errors"
	"os"
)

// Here does nothing.
func Here(Point) {}

// Check refuses an environment that would have the process killed in a build that was made for it: who sets
// that and finds that nothing dies would believe that all is well.
func Check() error {
	for _, name := range []string{Env, EnvLog} {
		if os.Getenv(name) != "" {
			return errors.New(name + " is set, and this build has no crash points: unset it, or build with -tags crashpoints")
		}
	}
	return nil
}
