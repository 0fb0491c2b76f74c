package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"oncelog/config"
	"oncelog/inspect"
	"oncelog/internal/vfs"
	"oncelog/server"
)

const importHelp = `broker import [flags] DIR... takes over partitions that Apache Kafka wrote, or that were put aside (-stray), while the broker is stopped. DIR is a
log directory of Kafka's, or the directory of one partition; it may be a log directory of this broker itself, where all stays in its place; what comes from elsewhere
goes into the first of log.dirs. The topics keep their names, ids, offsets, transactions and producers; with Kafka's metadata beside them also
their settings. Everything is read and checked first, and what is damaged isn't imported. An import that is interrupted is finished by the
next one.

    --config FILE        the broker's settings, as for serve; the environment counts, too
    --set key=value      one setting of the broker; repeatable
    --copy               copy, and leave DIR as it is; otherwise directories are moved
    --dry-run            only say what would be done
    --partial            partitions that are not among the directories begin empty; otherwise that is an error
    --topic-set key=value  a setting for all imported topics that aren't internal; repeatable
`

// importCommand takes over partitions.
func importCommand(args, env []string, stdout, stderr io.Writer) int {
	var file string
	var set, topicSet settings
	var o inspect.ImportOptions
	fs := flag.NewFlagSet("import", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&file, "config", "", "")
	fs.Var(&set, "set", "")
	fs.Var(&topicSet, "topic-set", "")
	fs.BoolVar(&o.Copy, "copy", false, "")
	fs.BoolVar(&o.DryRun, "dry-run", false, "")
	fs.BoolVar(&o.Partial, "partial", false, "")
	var err error
	o.Sources, err = parseMixed(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, importHelp)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "broker: import: %v, see broker import --help\n", err)
		return 2
	}
	if o.Config, _, err = config.Load(config.LoadOptions{File: file, Env: env, Set: set}); err != nil {
		fmt.Fprintf(stderr, "broker: import: %v\n", err)
		return 2
	}
	o.MetadataDir = server.MetadataDir(o.Config)
	o.TopicConfigs = map[string]string{}
	for _, s := range topicSet {
		key, value, _ := strings.Cut(s, "=")
		o.TopicConfigs[key] = value
	}
	return runImport(o, stdout, stderr)
}

func runImport(o inspect.ImportOptions, stdout, stderr io.Writer) int {
	if len(o.Sources) == 0 {
		interrupted, err := inspect.Interrupted(vfs.OS, o.Config.LogDirs()[0])
		if err == nil && !interrupted {
			err = errors.New("no directories, see broker import --help")
		}
		if err != nil {
			fmt.Fprintf(stderr, "broker: import: %v\n", err)
			return 2
		}
	}
	o.Tell = func(line string) { fmt.Fprintln(stdout, line) }
	done, err := inspect.Import(context.Background(), vfs.OS, o)
	if err != nil {
		fmt.Fprintf(stderr, "broker: import: %s\n", oneLine(err))
		return 1
	}
	verb := "imported"
	if o.DryRun {
		verb = "would import"
	}
	fmt.Fprintf(stdout, "%s %d topics with %d partitions and %d records\n", verb, done.Topics, done.Partitions, done.Records)
	return 0
}
