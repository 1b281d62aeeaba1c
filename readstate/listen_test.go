package readstate

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dirs are data directories with a short and a long path.
func dirs(t *testing.T) map[string]string {
	long := filepath.Join(t.TempDir(), strings.Repeat("l", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	return map[string]string{"short": t.TempDir(), "long": long}
}

// Listener and dialer find each other whatever the length of the directory's path, by any spelling of it; the socket is
// its owner's alone; closing leaves nothing behind.
func TestListenAndDial(t *testing.T) {
	for name, dir := range dirs(t) {
		t.Run(name, func(t *testing.T) {
			if _, err := Dial(context.Background(), dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("dial before listen gave %v", err)
			}
			listener, err := Listen(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := listener.Addr().String()
			if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
				t.Errorf("socket %v, %v", info.Mode(), err)
			}
			if _, err := Listen(dir); !errors.Is(err, ErrInUse) {
				t.Errorf("a second listener got %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				ended <- NewServer(newFakeProvider(), slog.New(slog.DiscardHandler), ServerConfig{}).Serve(ctx, listener)
			}()
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			for _, spelling := range []string{dir, link, dir + "/./"} {
				client, err := Dial(context.Background(), spelling)
				if err != nil {
					t.Fatal(err)
				}
				client.Close()
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
			if _, err := Dial(context.Background(), dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("dial after the end gave %v", err)
			}
		})
	}
}

// kill ends a listener as a crash does: its files stay.
func kill(t *testing.T, listener net.Listener) {
	if short, ok := listener.(*shortListener); ok {
		listener = short.Listener
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

// The socket of a dead process is no running mirror and is replaced.
func TestStaleSocketIsReplaced(t *testing.T) {
	for name, dir := range dirs(t) {
		t.Run(name, func(t *testing.T) {
			dead, err := Listen(dir)
			if err != nil {
				t.Fatal(err)
			}
			kill(t, dead)
			if _, err := os.Lstat(dead.Addr().String()); err != nil {
				t.Fatal(err)
			}
			if _, err := Dial(context.Background(), dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("dial to a dead process gave %v", err)
			}
			next, err := Listen(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			if name == "long" {
				if _, err := os.Lstat(filepath.Dir(dead.Addr().String())); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the dead process's directory is left: %v", err)
				}
			}
		})
	}
}

// A file that is no socket is left alone.
func TestOtherFileIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, socketName)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("listen gave %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// A path file that leads to a directory which others may write to is not believed, and does not stop the next start.
func TestForeignDirectoryIsNotBelieved(t *testing.T) {
	dir := dirs(t)["long"]
	foreign := t.TempDir()
	if err := os.Chmod(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	trap, err := net.Listen("unix", filepath.Join(foreign, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer trap.Close()
	if err := writePath(filepath.Join(dir, pathName), trap.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(context.Background(), dir); !errors.Is(err, errNotPrivate) {
		t.Errorf("dial gave %v", err)
	}
	listener, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := os.Lstat(trap.Addr().String()); err != nil {
		t.Errorf("a foreign socket was touched: %v", err)
	}
}
