//go:build race

package log

const raceEnabled = true // it makes each seed ten times as long
