package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeMirror is a monitor that says what it is told.
type fakeMirror struct {
	ready  error
	status string
}

func (f *fakeMirror) Ready() error { return f.ready }

func (f *fakeMirror) Status(context.Context) ([]byte, error) { return []byte(f.status), nil }

func testHandler(t *testing.T, m *fakeMirror, token string) http.Handler {
	t.Helper()
	registry, err := newRegistry(prometheus.NewCounter(prometheus.CounterOpts{Name: "pgmirror_test_total", Help: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	return newHTTPHandler(m, registry, token)
}

func get(h http.Handler, path, authorization string) (int, string) {
	r := httptest.NewRequest("GET", path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// The four pages answer, and nothing else does.
func TestHTTPPages(t *testing.T) {
	m := &fakeMirror{status: `{"state":"streaming","version":"v9","slot":"s"}`}
	h := testHandler(t, m, "")
	for _, c := range []struct {
		path, text string
		code       int
	}{
		{"/healthz", "ok\n", 200}, {"/readyz", "ready\n", 200}, {"/", "pgmirror v9: streaming", 200}, {"/nothing", "", 404},
		{"/metrics", "pgmirror_test_total 0", 200}, {"/metrics", "pgmirror_build_info{", 200},
	} {
		code, body := get(h, c.path, "")
		if code != c.code || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %q", c.path, code, body)
		}
	}
	m.ready = errors.New("reconnecting: connection refused")
	if code, body := get(h, "/readyz", ""); code != 503 || !strings.Contains(body, "connection refused") {
		t.Errorf("not ready: %d %q", code, body)
	}
	if code, _ := get(h, "/healthz", ""); code != 200 {
		t.Errorf("a process that is not ready lives: %d", code)
	}
	m.status = "{"
	if code, _ := get(h, "/", ""); code != 500 {
		t.Errorf("a broken status: %d", code)
	}
	r := httptest.NewRequest("POST", "/readyz", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// With a token, everything but /healthz wants exactly it.
func TestHTTPToken(t *testing.T) {
	const token = "0123456789abcdef"
	h := testHandler(t, &fakeMirror{status: "{}"}, token)
	for _, path := range []string{"/", "/readyz", "/metrics", "/nothing"} {
		for _, wrong := range []string{"", "Bearer", "Bearer ", "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token, token} {
			if code, body := get(h, path, wrong); code != 401 || strings.Contains(body, token) {
				t.Errorf("%s with %q: %d %q", path, wrong, code, body)
			}
		}
		if code, _ := get(h, path, "bearer "+token); code == 401 {
			t.Errorf("%s refuses the token", path)
		}
	}
	if code, _ := get(h, "/healthz", ""); code != 200 {
		t.Errorf("/healthz wants a token: %d", code)
	}
}

// The server stops with its context, and its listener is free again.
func TestServeHTTPStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveHTTP(ctx, l, testHandler(t, &fakeMirror{}, ""), slog.New(slog.DiscardHandler))
	}()
	response, err := http.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != "ok\n" {
		t.Errorf("got %q, %v", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}
