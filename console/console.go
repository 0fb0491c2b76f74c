package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// headerWithin bounds how long a client may take to send a request's header, idleFor how long a connection waits for
	// the next request.
	headerWithin = 10 * time.Second
	idleFor      = 2 * time.Minute
	// probeWithin bounds what a probe waits for the broker.
	probeWithin = 2 * time.Second
	// maxScrapes is how many scrapes may run at once; more are answered 503.
	maxScrapes = 4
)

// Request asks the broker, at the request's version.
type Request func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)

// Options are what a console gets. All but Logger are needed.
type Options struct {
	Address  string // host:port to listen on; port 0 takes a free one
	Request  Request
	Gatherer prometheus.Gatherer // the broker's own metrics
	Logger   *slog.Logger        // nil: slog.Default()
}

// Console is the HTTP server.
type Console struct {
	address string
	request Request
	log     *slog.Logger
	server  *http.Server
	socket  net.Listener
	served  chan struct{} // closed when the serving goroutine has ended
}

// New makes a console that does not listen yet.
func New(o Options) *Console {
	c := &Console{address: o.Address, request: o.Request, log: o.Logger, served: make(chan struct{})}
	if c.log == nil {
		c.log = slog.Default()
	}
	lags := prometheus.NewRegistry()
	lags.MustRegister(newLagCollector(o.Request, c.log))
	c.server = &http.Server{
		Handler:           c.routes(prometheus.Gatherers{o.Gatherer, lags}),
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       idleFor,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
	return c
}

func (c *Console) routes(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", c.ready)
	return mux
}

// Start listens and serves until Stop.
func (c *Console) Start(ctx context.Context) error {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("http.listener %s: %w", c.address, err)
	}
	c.socket = socket
	go func() {
		defer close(c.served)
		if err := c.server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("http server ended", slog.Any("error", err))
		}
	}()
	return nil
}

// Addr is where the console listens, once Start has returned.
func (c *Console) Addr() net.Addr { return c.socket.Addr() }

// Stop answers what is being asked, as long as ctx lasts, and stops listening.
func (c *Console) Stop(ctx context.Context) error {
	err := c.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, c.server.Close())
	}
	<-c.served
	return err
}

// ready answers whether clients can work with the broker: it answers them and there is a controller.
func (c *Console) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeWithin)
	defer cancel()
	if err := c.checkReady(ctx); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (c *Console) checkReady(ctx context.Context) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	resp, err := ask[*kmsg.DescribeClusterResponse](ctx, c.request, req)
	switch {
	case err != nil:
		return err
	case resp.ErrorCode != 0:
		return fmt.Errorf("describe cluster: error %d", resp.ErrorCode)
	case resp.ControllerID < 0:
		return errors.New("no controller")
	case len(resp.Brokers) == 0:
		return errors.New("no broker is registered")
	}
	return nil
}

// ask sends a request and gives the response as what it is.
func ask[R kmsg.Response](ctx context.Context, request Request, req kmsg.Request) (resp R, err error) {
	r, err := request(ctx, req)
	if err != nil {
		return resp, err
	}
	resp, ok := r.(R)
	if !ok {
		return resp, fmt.Errorf("%s was answered by %T", kmsg.NameForKey(req.Key()), r)
	}
	return resp, nil
}
