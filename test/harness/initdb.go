package harness

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// programs finds the directory that holds postgres and initdb.
func programs() (string, error) {
	var dirs []string
	if dir := os.Getenv("PGMIRROR_PG_BIN"); dir != "" {
		dirs = append(dirs, dir)
	} else {
		installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		sort.Slice(installed, func(i, j int) bool { return majorOf(installed[i]) > majorOf(installed[j]) })
		dirs = append(dirs, installed...)
		if path, err := exec.LookPath("postgres"); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL server found: install one (Debian: apt-get install postgresql) or set PGMIRROR_PG_BIN to the directory that holds postgres and initdb")
}

// majorOf reads the version out of /usr/lib/postgresql/<version>/bin.
func majorOf(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// account is the operating system user that the server runs as; nil means our own.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	name := os.Getenv("PGMIRROR_PG_USER")
	if name == "" {
		name = "postgres"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root: create the user %s or name another in PGMIRROR_PG_USER: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user id of %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group id of %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// give hands a file or directory to the server's user.
func give(path string, cred *syscall.Credential) error {
	if cred == nil {
		return nil
	}
	return os.Chown(path, int(cred.Uid), int(cred.Gid))
}

var templateLock sync.Mutex

// template returns the data directory of a fresh cluster, made once for each server and kept beside the other temporary
// files: initdb takes seconds, a copy a tenth of one. Two builds of one version differ in what initdb writes (collations,
// names of time zones), so the name of the directory tells them apart.
func template(bin string, cred *syscall.Credential) (string, error) {
	templateLock.Lock()
	defer templateLock.Unlock()
	version, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s/postgres for its version: %w", bin, err)
	}
	owner := os.Geteuid()
	if cred != nil {
		owner = int(cred.Uid)
	}
	words := strings.Fields(string(version))
	if len(words) < 3 {
		return "", fmt.Errorf("unknown version %q of %s/postgres", version, bin)
	}
	build := fnv.New32a()
	io.WriteString(build, bin)
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("pgmirror-initdb-%s-%08x-%d", words[2], build.Sum32(), owner))
	if info, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != owner {
			return "", fmt.Errorf("%s belongs to another user: remove it", dir)
		}
		return dir, nil
	}
	parent, err := os.MkdirTemp("", "pgmirror-initdb-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(parent)
	if err := errors.Join(os.Chmod(parent, 0o755), give(parent, cred)); err != nil {
		return "", err
	}
	fresh := filepath.Join(parent, "data")
	if err := initdb(bin, cred, fresh); err != nil {
		return "", err
	}
	// Another process may have been quicker; its template is as good as ours.
	if err := os.Rename(fresh, dir); err != nil {
		if _, statErr := os.Stat(filepath.Join(dir, "PG_VERSION")); statErr != nil {
			return "", fmt.Errorf("keep the fresh cluster: %w", err)
		}
	}
	return dir, nil
}

// copyTemplate makes the data directory of a cluster out of the template.
func copyTemplate(bin string, cred *syscall.Credential, dir string) error {
	from, err := template(bin, cred)
	if err != nil {
		return err
	}
	return copyDir(from, dir)
}

// initdb makes the data directory of a new cluster.
func initdb(bin string, cred *syscall.Credential, dir string) error {
	cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// copyDir copies a data directory with its owners and modes; to must not exist.
func copyDir(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s to %s: %w: %s", from, to, err, out)
	}
	return nil
}
