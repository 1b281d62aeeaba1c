package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promcollect "github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// monitor is what the HTTP port shows of a running mirror. *mirror.Mirror satisfies it.
type monitor interface {
	// Ready is nil when queries are answered and the source is connected, else the reason why not.
	Ready() error
	Status(ctx context.Context) ([]byte, error)
}

// newHTTPHandler serves /healthz, /readyz, /metrics and a status page at /. With a token, all but /healthz want it as
// "Authorization: Bearer TOKEN"; /healthz tells nothing but that the process lives.
func newHTTPHandler(m monitor, metrics prometheus.Gatherer, token string) http.Handler {
	private := http.NewServeMux()
	private.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := m.Ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	private.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	private.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		document, err := m.Status(r.Context())
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		page, err := statusScreen(document)
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		writeText(w, http.StatusOK, page)
	})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		writeText(w, http.StatusOK, "ok\n")
	})
	mux.Handle("/", requireToken(token, private))
	return mux
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A client that has gone away is not our fault and cannot be told.
	_, _ = w.Write([]byte(text))
}

// requireToken compares digests, so that neither the token's length nor its first characters can be timed.
func requireToken(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeText(w, http.StatusUnauthorized, "a bearer token is required\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newRegistry holds the given collectors' metrics, the process's and the build's.
func newRegistry(mirrored ...prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "pgmirror_build_info",
		Help:        "Always 1; the labels name the build.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision()},
	}, func() float64 { return 1 })
	standard := []prometheus.Collector{build, promcollect.NewGoCollector(), promcollect.NewProcessCollector(promcollect.ProcessCollectorOpts{})}
	for _, c := range append(standard, mirrored...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return registry, nil
}

// serveHTTP answers on l until ctx ends, then gives running requests a second.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(limitConnections(l, httpConnections)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-ended
	return err
}
