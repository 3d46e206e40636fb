//go:build !race

package histories_test

const race = false
