package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"oncelog/inspect"
	"oncelog/internal/vfs"
)

const dumpHelp = `broker dump [flags] FILE... prints what files of a partition hold, in the words of Kafka's dump tool (kafka-dump-log.sh), whose flags
it has: .log, .index, .timeindex, .txnindex, .snapshot, and .checkpoint of Kafka's metadata log.

    --deep-iteration                records too, not only batches
    --print-data-log                keys and values of records
    --skip-record-metadata          nothing of records but their keys and values
    --offsets-decoder               records of __consumer_offsets
    --transaction-log-decoder       records of __transaction_state
    --share-group-state-decoder     records of __share_group_state
    --cluster-metadata-decoder      records of Kafka's __cluster_metadata
    --verify-index-only             check indexes against their log, print nothing of them
    --index-sanity-check            only whether a broker would rebuild an index at its start
    --max-message-size BYTES        the longest batch that an index entry may point to (default 5242880)
    --max-bytes BYTES               how much of a log is read (default all)
    --files FILE,FILE...            the files, as Kafka's tool takes them
`

// dumpCommand prints files.
func dumpCommand(args []string, stdout, stderr io.Writer) int {
	var o inspect.DumpOptions
	var files string
	fs := flag.NewFlagSet("dump", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&o.Deep, "deep-iteration", false, "")
	fs.BoolVar(&o.Contents, "print-data-log", false, "")
	fs.BoolVar(&o.SkipMetadata, "skip-record-metadata", false, "")
	fs.BoolVar(&o.VerifyOnly, "verify-index-only", false, "")
	fs.BoolVar(&o.SanityOnly, "index-sanity-check", false, "")
	fs.Int64Var(&o.BatchBytes, "max-message-size", 0, "")
	fs.Int64Var(&o.MaxBytes, "max-bytes", 0, "")
	fs.StringVar(&files, "files", "", "")
	for name, decoder := range map[string]inspect.Decoder{
		"offsets-decoder": inspect.DecodeOffsets, "transaction-log-decoder": inspect.DecodeTransactions,
		"share-group-state-decoder": inspect.DecodeShareGroups, "cluster-metadata-decoder": inspect.DecodeMetadata,
	} {
		fs.BoolFunc(name, "", func(string) error {
			o.Decoder, o.Contents = decoder, true
			return nil
		})
	}
	names, err := parseMixed(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, dumpHelp)
		return 0
	}
	if files != "" {
		names = append(strings.Split(files, ","), names...)
	}
	if err == nil && len(names) == 0 {
		err = errors.New("no files")
	}
	if err != nil {
		fmt.Fprintf(stderr, "broker: dump: %v, see broker dump --help\n", err)
		return 2
	}
	if err := inspect.Dump(vfs.OS, names, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "broker: dump: %s\n", oneLine(err))
		return 1
	}
	return 0
}

// parseMixed parses flags that may stand among and behind the other arguments, which it gives back.
func parseMixed(fs *flag.FlagSet, args []string) (others []string, err error) {
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if args = fs.Args(); len(args) > 0 {
			others, args = append(others, args[0]), args[1:]
		}
	}
	return others, nil
}
