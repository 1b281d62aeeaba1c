package main

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// openSecrets are the files from which a password or token comes and that others than their owner may read: the config file and the pass file.
// libpq ignores such a pass file; the driver does not.
func (a *app) openSecrets(s *settings) (paths []string) {
	passFile := a.getenv("PGPASSFILE")
	if home := a.getenv("HOME"); passFile == "" && home != "" {
		passFile = filepath.Join(home, ".pgpass")
	}
	config, err := pgconn.ParseConfig(s.Source)
	if othersMayRead(s.secretFile) {
		paths = append(paths, s.secretFile)
	}
	if err == nil && config.Password != "" && othersMayRead(passFile) {
		paths = append(paths, passFile)
	}
	return paths
}

// passwordKeyword finds a password among libpq's keywords.
var passwordKeyword = regexp.MustCompile(`(?:^|\s)password\s*=`)

// passwordIn says whether a source names a password itself.
func passwordIn(source string) bool {
	if u, err := url.Parse(source); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		_, has := u.User.Password()
		return has || u.Query().Has("password")
	}
	return passwordKeyword.MatchString(source)
}

func othersMayRead(path string) bool {
	info, err := os.Stat(path)
	return path != "" && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}
