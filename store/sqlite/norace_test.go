//go:build !race

package sqlite

const race = false
