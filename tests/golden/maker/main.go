package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// t0 is the timestamp of the first record of every set with timestamps of its own, in ms. T0 in the environment is another.
var t0 = int64(1_700_000_000_000)

// phases are what is done to a broker, by set and phase.
var phases = map[string]func(*broker){
	"plain 1": plain, "txn 1": txn, "compacted 1": compacted, "appendtime 1": appendTime, "killed 1": killed, "metadata 1": metadata,
	"coordinators 0": expiring, "coordinators 1": coordinators, "coordinators classic": classicCoordinators,
	"epochs 1": epochs(1), "epochs 2": epochs(2), "epochs 3": epochs(3), "epochs 4": epochs(4),
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "maker:", err)
		os.Exit(1)
	}
}

// run turns the panics by which the steps of a set give up into an error.
func run(args []string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	if s := os.Getenv("T0"); s != "" {
		t0, err = strconv.ParseInt(s, 10, 64)
		must(err)
	}
	switch {
	case len(args) == 4 && args[0] == "fill":
		phase := phases[args[1]+" "+args[2]]
		if phase == nil {
			return fmt.Errorf("no phase %s of %s", args[2], args[1])
		}
		b := dial(args[3])
		defer b.close()
		phase(b)
	case len(args) > 3 && args[0] == "capture":
		b := dial(args[1])
		defer b.close()
		writeJSON(args[2], b.capture(args[3:]))
	case len(args) == 6 && args[0] == "expect":
		writeJSON(args[5], expect(args[1], args[2], args[3], args[4]))
	default:
		return errors.New("fill, capture or expect; the source says with what")
	}
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func writeJSON(name string, v any) {
	data, err := json.MarshalIndent(v, "", " ")
	must(err)
	must(os.WriteFile(name, append(data, '\n'), 0o644))
}
