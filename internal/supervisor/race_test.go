//go:build race

package supervisor_test

// slow is how much longer everything takes here.
const slow = 5
