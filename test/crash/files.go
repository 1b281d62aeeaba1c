package crash

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile writes a file beside path, syncs it, renames it into place and syncs the directory, which is made if need be.
// Each step is an effect of its own.
func (f *FS) WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := f.MkdirAll(dir); err != nil {
		return err
	}
	if err := f.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := f.Remove(temporary); err != nil {
		return err
	}
	w, err := f.Create(temporary)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return errors.Join(err, w.Close())
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		return err
	}
	if err := f.Rename(temporary, path); err != nil {
		return err
	}
	return f.SyncDir(dir)
}

// Map reads a file. unmap overwrites the bytes, so that who still uses them sees nonsense rather than luck.
func (f *FS) Map(path string) (data []byte, unmap func() error, err error) {
	if data, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	return data, func() error {
		for i := range data {
			data[i] = 0xdb
		}
		return nil
	}, nil
}

// List is ReadDir under the name that mirror.Files has for it.
func (f *FS) List(dir string) ([]string, error) { return f.ReadDir(dir) }
