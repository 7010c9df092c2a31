//go:build !race

package supervisor_test

// slow is the factor by which time limits are longer in this build.
const slow = 1
