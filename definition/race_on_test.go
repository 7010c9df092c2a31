//go:build race

package definition

const raceDetector = true
