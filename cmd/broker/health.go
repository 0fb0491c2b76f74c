package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	healthURL    = "http://127.0.0.1:9644/readyz"
	healthWithin = 5 * time.Second
)

// healthCommand asks a running broker whether it is ready; the exit code is the answer.
func healthCommand(args []string, stdout, stderr io.Writer) int {
	url := healthURL
	switch len(args) {
	case 0:
	case 1:
		url = args[0]
		if !strings.Contains(url, "://") {
			url = "http://" + url
		}
		if strings.Count(url, "/") == 2 {
			url += "/readyz"
		}
	default:
		fmt.Fprintln(stderr, "broker: health takes at most one URL")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return 2
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintf(stderr, "broker: not healthy: %v\n", err)
		return 1
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "broker: not healthy: %s: %s\n", resp.Status, strings.TrimSpace(string(body)))
		return 1
	}
	fmt.Fprintf(stdout, "%s\n", strings.TrimSpace(string(body)))
	return 0
}
