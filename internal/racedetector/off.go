//go:build !race

package racedetector

// On reports whether the program was built with the race detector.
const On = false
