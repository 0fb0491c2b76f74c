//go:build race

package brokertest

// The broker is built with the race detector when the test is.
const raceFlag = "-race=true"
