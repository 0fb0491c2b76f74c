package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"oncelog/config"
	"oncelog/console"
	"oncelog/server"
)

const (
	// startWithin bounds the start but for the recovery of the logs, which takes the time it takes.
	startWithin = 10 * time.Minute
	// stopWithin is how long a clean stop may take before what is left is cut off.
	stopWithin = 30 * time.Second
	// secondSignalAfter is from when on a second signal means more than the first: shells, supervisors and process groups
	// often tell the same stop twice.
	secondSignalAfter = time.Second
	// resolveWithin bounds the look-up of an advertised name.
	resolveWithin = 5 * time.Second
)

// part is something that runs from start to stop.
type part struct {
	name  string
	start func(context.Context) error
	stop  func(context.Context) error
}

// node is the parts of one broker process and what connects them.
type node struct {
	cfg      *config.Broker
	log      *slog.Logger
	registry *prometheus.Registry
	server   *server.Server
	console  *console.Console // nil if http.listener is empty

	background sync.WaitGroup
	cancel     context.CancelFunc // ends background
}

// serve runs a broker until a signal.
func serve(cfg *config.Broker, logger *slog.Logger) error {
	began := time.Now()
	defer raiseHeapFloor()()
	defer trimHeap(heapQuiet)()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	n, err := newNode(cfg, logger)
	if err != nil {
		return err
	}
	parts := n.parts()
	started, err := startAll(parts, signals)
	if err == nil {
		n.tellReady(time.Since(began))
		select {
		case sig := <-signals:
			logger.Info("stopping", slog.String("signal", sig.String()))
		case err = <-n.server.Failed():
			logger.Error("stopping, the broker can't go on", slog.Any("error", err))
		}
	} else if errors.Is(err, errInterrupted) {
		logger.Info("stopping before being ready")
		err = nil
	}
	told := time.Now()
	go func() {
		for sig := range signals {
			if time.Since(told) < secondSignalAfter {
				continue
			}
			logger.Error("stopped at once by a second signal", slog.String("signal", sig.String()))
			os.Exit(1)
		}
	}()
	if stopErr := stopAll(started); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

func newNode(cfg *config.Broker, logger *slog.Logger) (*node, error) {
	n := &node{cfg: cfg, log: logger, registry: prometheus.NewRegistry()}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	var err error
	n.server, err = server.New(server.Options{Config: cfg, Logger: logger, Registry: n.registry})
	if err != nil {
		return nil, err
	}
	if address := cfg.String("http.listener"); address != "" {
		n.console = console.New(console.Options{
			Address:  address,
			Request:  n.server.Request,
			Gatherer: n.registry,
			Logger:   logger,
		})
	}
	return n, nil
}

// parts is the order of the start; the stop is its mirror.
func (n *node) parts() []part {
	parts := []part{
		{"server", n.server.Start, n.server.Stop},
		{"background checks", n.startChecks, n.stopChecks},
	}
	if n.console != nil {
		parts = append(parts, part{"http", n.console.Start, n.console.Stop})
	}
	return parts
}

var errInterrupted = errors.New("interrupted by a signal")

// startAll starts the parts in order and gives those that must be stopped. A signal in the meantime ends the start.
func startAll(parts []part, signals chan os.Signal) (started []part, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for _, p := range parts {
		done := make(chan error, 1)
		go func() { done <- p.start(ctx) }()
		select {
		case err = <-done:
		case <-signals:
			cancel()
			if err = <-done; err == nil {
				started = append(started, p)
			}
			return started, errInterrupted
		}
		if err != nil {
			return started, err
		}
		started = append(started, p)
	}
	return started, nil
}

func stopAll(started []part) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	var errs []error
	for _, p := range slices.Backward(started) {
		if err := p.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// tellReady logs the one line that says where the broker listens.
func (n *node) tellReady(took time.Duration) {
	var listeners []string
	for name, addr := range n.server.Addrs() {
		listeners = append(listeners, name+"://"+addr.String())
	}
	slices.Sort(listeners)
	facts := []any{slog.String("listeners", strings.Join(listeners, ","))}
	if n.console != nil {
		facts = append(facts, slog.String("http", "http://"+n.console.Addr().String()))
	}
	facts = append(facts, slog.Int64("node", n.cfg.Int("node.id")), slog.String("data", strings.Join(n.cfg.LogDirs(), ",")),
		slog.Int64("tookMs", took.Milliseconds()))
	n.log.Info("ready", facts...)
}

// startChecks looks at things that need not hold up the start.
func (n *node) startChecks(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	if n.cfg.IsSet("advertised.listeners") {
		n.background.Go(func() { n.checkAdvertised(ctx) })
	}
	return nil
}

func (n *node) stopChecks(context.Context) error {
	n.cancel()
	n.background.Wait()
	return nil
}

// checkAdvertised warns of names that clients will be sent to and that mean nothing here. They may still mean something
// where the clients are, so it is no error.
func (n *node) checkAdvertised(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	for _, l := range n.cfg.AdvertisedListeners() {
		if l.Host == "" || net.ParseIP(l.Host) != nil {
			continue
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, l.Host); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			n.log.Warn("advertised name can't be resolved here: clients are sent to it",
				slog.String("listener", l.Name), slog.String("host", l.Host), slog.Any("error", err))
		}
	}
}
