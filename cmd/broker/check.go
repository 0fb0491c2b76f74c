package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"oncelog/inspect"
	"oncelog/internal/vfs"
)

const checkHelp = `broker check [flags] DIR verifies a log directory whole, and changes nothing: every batch with its records, indexes, transaction indexes,
snapshots, leader epochs and checkpoints, each against what the log says, and the partitions against the metadata. A line for each finding:

    error      what isn't there, or isn't what was written
    warning    what the next start puts right by itself
    note       nothing wrong, but worth to know

The exit code is 0 if there are no errors and warnings, 1 if there are, and 2 if the directory can't be checked.

    --json             one JSON object instead of lines
    --live             check while a broker runs on the directory; what is just being written is no finding, the metadata isn't read
    --metadata DIR     where the metadata lies, if not in the folder raft of DIR (metadata.log.dir)
    --quiet            no notes, no summary
`

// checkCommand verifies a directory.
func checkCommand(args []string, stdout, stderr io.Writer) int {
	var o inspect.CheckOptions
	var asJSON, quiet bool
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&asJSON, "json", false, "")
	fs.BoolVar(&o.Live, "live", false, "")
	fs.StringVar(&o.MetadataDir, "metadata", "", "")
	fs.BoolVar(&quiet, "quiet", false, "")
	dirs, err := parseMixed(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, checkHelp)
		return 0
	}
	if err == nil && len(dirs) != 1 {
		err = errors.New("it takes one directory")
	}
	if err != nil {
		fmt.Fprintf(stderr, "broker: check: %v, see broker check --help\n", err)
		return 2
	}
	bar := newProgressBar(stderr)
	o.Progress = bar.show
	if !asJSON {
		o.Found = func(f inspect.Finding) {
			if f.Severity > inspect.Note || !quiet {
				bar.clear()
				fmt.Fprintln(stdout, f)
			}
		}
	}
	report, err := inspect.Check(vfs.OS, dirs[0], o)
	bar.clear()
	if err != nil {
		fmt.Fprintf(stderr, "broker: check: %s\n", oneLine(err))
		if errors.Is(err, inspect.ErrInUse) {
			fmt.Fprintln(stderr, "broker: check: stop it first, or add --live")
		}
		return 2
	}
	return tellChecked(report, asJSON, quiet, stdout, stderr)
}

func tellChecked(r inspect.CheckReport, asJSON, quiet bool, stdout, stderr io.Writer) int {
	if asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			fmt.Fprintf(stderr, "broker: check: %v\n", err)
			return 2
		}
	} else if !quiet {
		counts := map[inspect.Severity]int{}
		for _, f := range r.Findings {
			counts[f.Severity]++
		}
		fmt.Fprintf(stdout, "%s: %d partitions, %d segments, %d batches, %d records, %d bytes: %d errors, %d warnings\n",
			r.Dir, r.Partitions, r.Segments, r.Batches, r.Records, r.Bytes, counts[inspect.Error], counts[inspect.Warning])
	}
	if r.Worst() > inspect.Note {
		return 1
	}
	return 0
}

// progressBar draws how far something is on the last line of a terminal, and nothing anywhere else.
type progressBar struct {
	w io.Writer // nil if there is no terminal

	mu    sync.Mutex
	drawn bool
	at    time.Time // of the last drawing
}

const (
	barWidth = 40
	barEvery = 100 * time.Millisecond
)

func newProgressBar(w io.Writer) *progressBar {
	if !isTerminal(w) {
		w = nil
	}
	return &progressBar{w: w}
}

func (b *progressBar) show(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.w == nil || total <= 0 || now.Sub(b.at) < barEvery {
		return
	}
	b.at, b.drawn = now, true
	n := int(min(done, total) * barWidth / total)
	bar := make([]byte, barWidth)
	for i := range bar {
		bar[i] = ' '
		if i < n {
			bar[i] = '#'
		}
	}
	fmt.Fprintf(b.w, "\r[%s] %3d %%  %d of %d MiB", bar, min(done, total)*100/total, done>>20, total>>20)
}

// clear takes the bar away, so that something else can be printed.
func (b *progressBar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = false
	}
}
