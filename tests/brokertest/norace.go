//go:build !race

package brokertest

const raceFlag = "-race=false"
