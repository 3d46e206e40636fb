SELECT CONCAT(CASE WHEN CONVERT(INT, SERVERPROPERTY('EngineEdition')) IN (5, 8) THEN 'Microsoft Azure SQL ' ELSE 'Microsoft SQL Server ' END,
   CONVERT(NVARCHAR(128), SERVERPROPERTY('ProductVersion')), ', compatibility level ', d.compatibility_level, ', READ_COMMITTED_SNAPSHOT ', CONVERT(INT, d.is_read_committed_snapshot_on))
  FROM sys.databases d WHERE d.name = DB_NAME()
