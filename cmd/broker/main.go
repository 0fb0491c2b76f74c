package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"oncelog/config"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is the command: it returns the exit code, 0 for success, 1 for what went wrong and 2 for a command line that makes
// no sense. Results go to stdout, errors and the log to stderr.
func run(args, env []string, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	switch name {
	case "serve":
		return serveCommand(args, env, stdout, stderr)
	case "health":
		return healthCommand(args, stdout, stderr)
	case "check":
		return checkCommand(args, stdout, stderr)
	case "import":
		return importCommand(args, env, stdout, stderr)
	case "dump":
		return dumpCommand(args, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, versionLine())
		return 0
	case "help":
		fmt.Fprint(stdout, help)
		return 0
	}
	fmt.Fprintf(stderr, "broker: unknown command %q, see broker --help\n", name)
	return 2
}

// settings collects repeated --set flags.
type settings []string

func (s *settings) String() string { return strings.Join(*s, " ") }
func (s *settings) Set(v string) error {
	if !strings.Contains(v, "=") {
		return errors.New("not key=value")
	}
	*s = append(*s, v)
	return nil
}

// flags are what serve is told on its command line, or by the environment.
type flags struct {
	file      string
	set       settings
	logLevel  string
	logFormat string
	version   bool
}

func parseFlags(args, env []string) (*flags, error) {
	var f flags
	fs := flag.NewFlagSet("broker", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&f.file, "config", "", "")
	fs.Var(&f.set, "set", "")
	fs.StringVar(&f.logLevel, "log-level", lookup(env, "ONCELOG_LOG_LEVEL", "info"), "")
	fs.StringVar(&f.logFormat, "log-format", lookup(env, "ONCELOG_LOG_FORMAT", "text"), "")
	fs.BoolVar(&f.version, "version", false, "")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return &f, nil
}

// lookup gives a variable of an environment in the form of os.Environ; of two settings the later holds.
func lookup(env []string, name, missing string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return missing
}

func serveCommand(args, env []string, stdout, stderr io.Writer) int {
	f, err := parseFlags(args, env)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "broker: %v, see broker --help\n", err)
		return 2
	case f.version:
		fmt.Fprintln(stdout, versionLine())
		return 0
	}
	logger, err := newLogger(stderr, f.logLevel, f.logFormat)
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v, see broker --help\n", err)
		return 2
	}
	slog.SetDefault(logger)
	cfg, report, err := config.Load(config.LoadOptions{File: f.file, Env: env, Set: f.set})
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return 1
	}
	tellReport(logger, report)
	if err := cfg.Supported(); err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return 1
	}
	if err := serve(cfg, logger); err != nil {
		fmt.Fprintf(stderr, "broker: %s\n", oneLine(err))
		return 1
	}
	return 0
}

// oneLine puts an error that joins several on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log format %q is none of text, json", format)
}

// tellReport logs which settings were not understood, and which do nothing here.
func tellReport(logger *slog.Logger, r config.Report) {
	for _, key := range r.Unknown {
		logger.Warn("unknown setting ignored", slog.String("key", key))
	}
	for _, w := range r.Warnings {
		logger.Warn("odd configuration", slog.String("what", w))
	}
	if len(r.WithoutEffect) > 0 {
		logger.Info("settings accepted without effect", slog.String("keys", strings.Join(r.WithoutEffect, " ")))
	}
}
