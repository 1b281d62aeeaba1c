package main

import (
	"os"
	"path/filepath"

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
	secret := err == nil && config.Password != "" // from the source, the environment or the pass file
	if (secret || s.Token != "") && othersMayRead(s.secretFile) {
		paths = append(paths, s.secretFile)
	}
	if secret && othersMayRead(passFile) {
		paths = append(paths, passFile)
	}
	return paths
}

func othersMayRead(path string) bool {
	info, err := os.Stat(path)
	return path != "" && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}
