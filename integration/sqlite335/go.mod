module github.com/postrider/postrider/integration/sqlite335

go 1.26.0

require (
	github.com/mattn/go-sqlite3 v1.14.7
	github.com/postrider/postrider v0.0.0
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/postrider/postrider => ../..
