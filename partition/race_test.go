//go:build race

package partition

const raceEnabled = true // it makes pools forget
