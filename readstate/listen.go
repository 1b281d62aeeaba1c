package readstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	socketName = "pgmirror.sock"
	// pathName holds the socket's path when the data directory's own is too long for a socket address.
	pathName = "pgmirror.sock.path"
	// maxSocketPath is the shortest limit of the systems we run on: sun_path has 104 bytes on macOS and 108 on Linux, the
	// last of them zero (unix(4), unix(7)).
	maxSocketPath = 103
	answerWait    = 2 * time.Second
)

// Listen makes the data directory's socket, which only its owner may connect to. A socket that a dead process left is
// replaced; one that is answered gives ErrInUse. Closing the listener removes what Listen made.
func Listen(dataDir string) (net.Listener, error) {
	dir, err := realDir(dataDir)
	if err != nil {
		return nil, fmt.Errorf("listen for queries: %w", err)
	}
	pathFile := filepath.Join(dir, pathName)
	path, err := socketOf(dir)
	if err == nil {
		err = removeStale(path)
	}
	if errors.Is(err, errNotPrivate) {
		path = "" // a dead process's directory was cleaned away and somebody else took its name
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen for queries: %w", err)
	}
	if own := filepath.Join(dir, socketName); len(own) <= maxSocketPath {
		listener, err := listenAt(own)
		if err != nil {
			return nil, fmt.Errorf("listen for queries: %w", err)
		}
		return listener, nil
	}
	if path != "" {
		os.Remove(filepath.Dir(path)) // a dead process's, empty now; a directory with more in it stays
	}
	short, err := shortDir()
	if err != nil {
		return nil, fmt.Errorf("listen for queries: %w", err)
	}
	inner, err := listenAt(filepath.Join(short, socketName))
	if err == nil {
		listener := &shortListener{Listener: inner, dir: short, pathFile: pathFile}
		if err = writePath(pathFile, inner.Addr().String()); err == nil {
			return listener, nil
		}
		inner.Close()
	}
	os.Remove(short)
	return nil, fmt.Errorf("listen for queries: %w", err)
}

// Dial connects to the mirror that runs on a data directory; ErrNotRunning when none does.
func Dial(ctx context.Context, dataDir string) (*Client, error) {
	dir, err := realDir(dataDir)
	if err == nil {
		var path string
		if path, err = socketOf(dir); err == nil {
			var conn net.Conn
			if conn, err = new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
				return NewClient(ctx, conn, ClientConfig{})
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w (%s)", ErrNotRunning, dataDir)
	}
	return nil, fmt.Errorf("connect to the running pgmirror: %w", err)
}

var errNotPrivate = errors.New("is not private to the data directory's owner")

// realDir gives one spelling to a directory, so that listener and dialer measure the same path.
func realDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// socketOf returns the path of a data directory's socket; fs.ErrNotExist when it has none. A path from the path file is
// believed only when the socket's directory belongs to the data directory's owner alone, since anybody may create files
// in a directory for temporary ones.
func socketOf(dir string) (string, error) {
	own := filepath.Join(dir, socketName)
	if len(own) <= maxSocketPath {
		_, err := os.Lstat(own)
		return own, err
	}
	text, err := os.ReadFile(filepath.Join(dir, pathName))
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(string(text), "\n")
	if !filepath.IsAbs(path) || len(path) > maxSocketPath || filepath.Base(path) != socketName {
		return "", fmt.Errorf("%s does not name a socket", filepath.Join(dir, pathName))
	}
	data, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	parent, err := os.Lstat(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if owner(parent) != owner(data) || !parent.IsDir() || parent.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s %w", filepath.Dir(path), errNotPrivate)
	}
	_, err = os.Lstat(path)
	return path, err
}

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// removeStale removes a socket on which nobody answers.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way: it is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, answerWait)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%w %s", ErrInUse, path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("see whether somebody listens: %w", err)
	}
	return os.Remove(path)
}

func listenAt(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// shortDir makes a private directory whose path leaves room for a socket.
func shortDir() (string, error) {
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if base == "" || len(filepath.Join(base, "pgmirror-0123456789", socketName)) > maxSocketPath {
			continue
		}
		if dir, err := os.MkdirTemp(base, "pgmirror-"); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the data directory's path is too long for a socket, and no runtime directory takes one")
}

// writePath writes the path file and renames it into place, so that nobody reads half of it.
func writePath(pathFile, path string) error {
	temporary := pathFile + ".tmp"
	if err := os.WriteFile(temporary, []byte(path+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, pathFile)
}

// shortListener removes its directory and the path file when it is closed.
type shortListener struct {
	net.Listener
	dir, pathFile string
	once          sync.Once
}

func (l *shortListener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() {
		err = errors.Join(err, os.Remove(l.pathFile), os.Remove(l.dir))
	})
	return err
}
